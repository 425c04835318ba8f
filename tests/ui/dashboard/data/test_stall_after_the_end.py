"""A job that hung and then ended: every page, the command and alerts name the same culprit as before.

Real jobs: ``tests/scenarios/test_hang_after_the_end.py``.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Reader, StoreReader
from telemetry.stores.queries import Steps
from telemetry.tables import ENDED_FAILED, ENDED_WELL
from tests.memory_store import memory_store
from tests.telemetry.made_rows import insert, made
from tests.ui.made_hang import STEP, STUCK, S, evidence_rows
from tests.ui.named_everywhere import named_by_pages, named_everywhere, row_of
from tests.ui.remembering import Remembering
from tests.ui.synthetic_run import SyntheticRun
from tests.ui.words_of_pages import said
from ui.dashboard.data import Reads
from ui.dashboard.data.run_rows import RunRow
from ui.dashboard.view_state import View
from ui.dashboard.wording import clock, stamp

STALL_S = 180
TIMEOUT = "collective timeout"
"""Its status is that of the older recorder, and its spans are those of Ctrl-C."""
OLDER_RECORDER = "collective timeout, an older recorder"
"""It writes a span for the step while the ranks unwind."""
ENDS = {
    TIMEOUT: {"alive": 0, "ended": ENDED_FAILED},
    "kill -9": {"alive": 0, "ended": 0},
    "Ctrl-C": {"alive": 0, "ended": ENDED_WELL},
    OLDER_RECORDER: {"alive": 0, "ended": ENDED_FAILED},
}
OTHERS = [end for end in ENDS if end != TIMEOUT]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hung:
    """The reports about a run while it hung."""

    named: dict[str, tuple[int, ...]]
    row: RunRow
    numbers: str
    """The numbers on the overview."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The reports about the same run after its end."""

    named: dict[str, tuple[int, ...]]
    row: RunRow
    trained_ns: int
    """From the start to the end of the last step that completed."""
    lasted_ns: int
    num_steps: int
    """The number of steps that pages and detectors know."""
    numbers: str
    """The numbers on the overview."""


@pytest.fixture(scope="module")
def hung() -> Hung:
    """The kind of end does not change this, so it is computed once for all ends."""
    with memory_store() as store:
        run = stalled(store)
        reader = Remembering(StoreReader(store))
        stalled_s = run.now_ns / 1e9 + 40
        return Hung(
            named=named_everywhere(reader, "stuck", now_s=lambda: stalled_s),
            row=row_of(reader, "stuck", now_s=lambda: stalled_s),
            numbers=_numbers(reader, stalled_s),
        )


@pytest.fixture(scope="module", params=[pytest.param(TIMEOUT, marks=pytest.mark.long), *OTHERS])
def ended(request: pytest.FixtureRequest) -> Iterator[Ended]:
    with memory_store() as store:
        run = stalled(store)
        trained_ns = run.now_ns - run.started_ns
        end_ns = end(store, run, request.param)
        reader = Remembering(StoreReader(store))
        yield Ended(
            named=named_everywhere(reader, "stuck", now_s=lambda: end_ns / 1e9 + 5),
            row=row_of(reader, "stuck", now_s=lambda: end_ns / 1e9 + 5),
            trained_ns=trained_ns,
            lasted_ns=end_ns - run.started_ns,
            num_steps=reader.read(Steps(run_id="stuck", attempt=0)).num_rows,
            numbers=_numbers(reader, end_ns / 1e9 + 5),
        )


def stalled(store: EmbeddedStore) -> SyntheticRun:
    """Rank 5 hangs in its data loader in step 40."""
    run = SyntheticRun(run_id="stuck", slow={})
    run.introduce(store)
    run.advance(store, STEP)
    run.leave_evidence(store, evidence_rows(run.now_ns + 36 * S))
    beat(store, run.now_ns + 36 * S, alive=1, ended=0)
    return run


def end(store: EmbeddedStore, run: SyntheticRun, how: str) -> int:
    """End all ranks at once after the stall; return the time. Spans that an error unwinds are recorded."""
    end_ns = run.now_ns + STALL_S * S
    if how != "kill -9":
        stage = Stage.STEP if how == OLDER_RECORDER else Stage.FORWARD_RECV
        span = {"stage": int(stage), "step": STEP, "start_ns": run.now_ns, "duration_ns": STALL_S * S}
        insert(store, "spans", made("spans", [{"rank": rank, **span} for rank in range(8)]), run_id=run.run_id)
    beat(store, end_ns, **ENDS[how])
    return end_ns


def beat(store: EmbeddedStore, at_ns: int, **values: int) -> None:
    rows = [{"rank": rank, "at_ns": at_ns, "beat_ns": at_ns, "step": STEP, **values} for rank in range(8)]
    insert(store, "heartbeats", made("heartbeats", rows), run_id="stuck")


def _numbers(reader: Reader, now_s: float) -> str:
    return said("numbers", Reads(reader, wall_s=lambda: now_s), view=View.OVERVIEW, run="stuck")


def test_same_culprit_is_named_before_and_after_the_end_of_the_run(hung: Hung, ended: Ended) -> None:
    assert hung.named == dict.fromkeys(hung.named, (STUCK,))
    assert ended.named == hung.named


def test_goodput_and_step_time_do_not_count_the_interrupted_step(hung: Hung, ended: Ended) -> None:
    assert ended.row.goodput == pytest.approx(ended.trained_ns / ended.lasted_ns, abs=0.02)
    before, after = hung.row.step_time, ended.row.step_time
    assert before is not None
    assert after is not None
    assert after.mean == pytest.approx(before.mean)
    assert (after.first_step, after.last_step, ended.row.last_step) == (0, STEP - 1, STEP - 1)
    assert ended.num_steps == STEP


def test_overview_shows_how_long_the_stall_lasted_until_the_end(hung: Hung, ended: Ended) -> None:
    assert "Stalled 34 s" in hung.numbers
    assert "Stalled 2 min 58 s until the job ended" in ended.numbers


def test_new_attempt_shows_its_own_state_and_the_stalled_attempt_keeps_its_verdict(
    embedded: EmbeddedStore,
) -> None:
    store = embedded
    reader, run = StoreReader(store), stalled(store)
    end_ns = end(store, run, TIMEOUT)
    again = SyntheticRun(run_id="stuck", attempt=1, slow={}, started_ns=end_ns + 10 * S)
    again.introduce(store)
    again.advance_from(STEP)
    again.advance(store, 60)
    again.beat(store, at_ns=again.now_ns)

    def now_s() -> float:
        return again.now_ns / 1e9 + 2

    old, new = (named_by_pages(reader, "stuck", attempt, now_s=now_s) for attempt in (0, 1))
    assert old == dict.fromkeys(old, (STUCK,))
    assert new == dict.fromkeys(new, ())
    row = row_of(reader, "stuck", now_s=now_s)
    assert (row.attempt, row.state, row.findings) == (1, "live", None)
    lost_ns = (STALL_S + 10) * S
    assert row.goodput == pytest.approx(1 - lost_ns / (row.heard_ns - run.started_ns), abs=0.02)


def test_pages_describe_the_stall_of_an_ended_run_in_the_past_tense(embedded: EmbeddedStore) -> None:
    reader, run = StoreReader(embedded), stalled(embedded)
    lives = Reads(reader, wall_s=lambda: run.now_ns / 1e9 + 40)
    verdict, rank = said("hang-verdict", lives, run="stuck"), said("rank", lives, run="stuck")
    assert "rank 5 is behind" in verdict
    assert "the run ended" not in verdict
    assert "process alive in stage" in " ".join(rank.split(" step 40 "))
    end_ns = end(embedded, run, "kill -9")
    over = Reads(reader, wall_s=lambda: end_ns / 1e9 + 5)
    verdict, rank = said("hang-verdict", over, run="stuck"), said("rank", over, run="stuck")
    assert "rank 5 was behind" in verdict
    assert f"the run ended at {stamp(end_ns)}" in verdict
    assert f"process alive at {clock(run.now_ns + 36 * S)}" in rank
    assert "Held up" in rank
    assert "Rank 5 waited for" in said("chain", over, run="stuck")
