"""Profiled steps lead to no finding. A rank that is also slow without a profile is still named."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from diagnose.model.load import load_view
from diagnose.model.profiled import Profiled, load_profiled
from diagnose.model.view import RunView, Series
from diagnose.pipeline import diagnose_run, diagnose_view
from diagnose.whatif.conclude import conclude
from telemetry.profiles import PROFILED, Phase, ProfileOutcome, profiled_text
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.tables import PROFILE_REQUESTS
from telemetry.topology import Topology
from tests.diagnose.made_view import make_view
from tests.telemetry.made_rows import insert
from tests.ui.counting import Counting
from tests.ui.made_profiles import FIRST, store_state
from tests.ui.synthetic_run import SyntheticRun

GRID = Topology(dp=4, pp=2)
PROFILED_ROWS = slice(20, 40)


def slowed(view: RunView, rank: int, rows: slice, factor: float = 1.8) -> RunView:
    """``view`` in which one rank is slower by ``factor`` in some rows. The steps of these rows are longer."""
    work = {stage: replace(each, ns=each.ns.copy()) for stage, each in view.work.items()}
    for each in work.values():
        each.ns[rows, rank] *= factor
    step_ns = view.step_ns.copy()
    step_ns[rows] *= factor
    return replace(view, work=work, step_ns=step_ns, history=Series(steps=view.steps, values=step_ns))


def named(view: RunView) -> list[tuple[str, list[int]]]:
    return [(str(finding.kind), finding.ranks) for finding in diagnose_view(view).findings]


def test_profiled_steps_lead_to_no_finding() -> None:
    view = slowed(make_view(GRID, num_steps=60), 3, PROFILED_ROWS)
    assert ("compute-straggler", [3]) in named(view)
    marked = replace(view, profiled=Profiled(steps=view.steps[PROFILED_ROWS]))
    report = diagnose_view(marked)
    assert (report.findings, report.num_steps) == ((), 40)
    assert all(finding.kind == "insufficient-evidence" for finding in conclude(marked).report.findings)


def test_slower_steps_during_a_profile_are_not_reported_as_a_decline() -> None:
    view = make_view(GRID, num_steps=60)
    step_ns = np.where(view.steps < view.steps[30], view.step_ns, 1.8 * view.step_ns)
    view = replace(view, step_ns=step_ns, history=Series(steps=view.steps, values=step_ns))
    assert named(view) == [("mfu-decline", [])]
    assert named(replace(view, profiled=Profiled(steps=view.steps[30:]))) == []


def test_rank_slow_in_profiled_and_other_steps_is_named() -> None:
    view = slowed(make_view(GRID, slow={3: 1.4}), 3, PROFILED_ROWS)
    (finding,) = diagnose_view(replace(view, profiled=Profiled(steps=view.steps[PROFILED_ROWS]))).findings
    assert (str(finding.kind), finding.ranks) == ("compute-straggler", [3])
    assert finding.window.last_step == view.steps[19]
    assert 1.35 < finding.evidence["ratio"] < 1.45  # type: ignore[operator]


def test_finding_says_that_all_steps_were_profiled() -> None:
    view = make_view(GRID)
    (finding,) = diagnose_view(replace(view, profiled=Profiled(steps=view.steps))).findings
    assert finding.summary.startswith("all completed steps were profiled")


def test_speeds_of_profiled_steps_are_ignored_but_their_loss_is_kept() -> None:
    view = make_view(GRID)
    numbers = Series(steps=view.steps, values=np.ones(len(view.steps)))
    view = replace(
        view, profiled=Profiled(steps=view.steps[:5]), history=numbers, samples={"mfu": numbers, "loss": numbers}
    )
    left = view.without_profiled()
    assert [len(left.samples[name].steps) for name in ("mfu", "loss")] == [35, 40]
    assert (len(left.steps), len(left.history.steps)) == (35, 35)


def test_a_stored_run_with_a_profiled_rank_has_no_finding(embedded: EmbeddedStore) -> None:
    run = SyntheticRun(slow={})
    run.introduce(embedded)
    run.advance(embedded, 10)
    run.slow = {5: 1.8}
    run.advance(embedded, 20)
    run.slow = {}
    run.advance(embedded, 10)
    reader = StoreReader(embedded)
    assert [finding.ranks for finding in diagnose_run(reader, run.run_id, 0).findings] == [[5]]
    run.mark(embedded, 5, PROFILED, profiled_text(10, 29))
    counting = Counting(reader)
    assert diagnose_run(counting, run.run_id, 0).findings == ()
    assert counting.asked["ProfileRequests"] == 1
    view = load_view(reader, run.run_id, 0)
    assert (len(view.steps), view.profiled.steps.tolist()) == (40, list(range(10, 31)))


def test_steps_of_a_running_or_failed_profile_count_as_profiled(embedded: EmbeddedStore) -> None:
    """The rank has not written its mark yet, or it cannot write it."""
    row = {"profile_id": FIRST, "rank": 5, "at_ns": 10**18, "steps": 5, "seconds": 60, "finding": ""}
    insert(embedded, "profile_requests", pa.Table.from_pylist([row], schema=PROFILE_REQUESTS), run_id="run")
    outcome = ProfileOutcome(profile_id=FIRST, phase=Phase.RUNNING, first_step=7, last_step=6, began_ns=1)
    store_state(embedded, "run", 5, outcome, at_ns=1)
    reader = StoreReader(embedded)

    def profiled() -> list[int]:
        return load_profiled(reader, "run", 0, np.arange(0, 100), clock_ns=lambda: 10**18).steps.tolist()  # type: ignore[no-any-return]

    assert profiled() == [7, 8, 9, 10, 11, 12]
    store_state(embedded, "run", 5, replace(outcome, phase=Phase.FAILED, last_step=8), at_ns=2)
    assert profiled() == [7, 8, 9]
