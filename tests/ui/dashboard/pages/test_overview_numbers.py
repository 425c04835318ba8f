"""The numbers above the curves of an overview: the same as in the list of runs, and each step is lost only once."""

import json
from dataclasses import replace

import numpy as np
import pytest
from plotly.utils import PlotlyJSONEncoder

from diagnose.findings import Basis, Finding, Kind, Severity, StepWindow
from telemetry.stores.interface import StoreReader
from tests.each_case import each_case
from tests.memory_store import memory_store
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.data import Reads
from ui.dashboard.pages.overview.page import draw_numbers, seconds_lost
from ui.dashboard.pages.runs.listing import run_list
from ui.dashboard.pages.runs.page import draw_runs
from ui.dashboard.records import StepTimes
from ui.dashboard.view_state import View, ViewState
from ui.dashboard.wording import duration

STEPS = StepTimes(
    step=np.arange(10),
    start_ns=np.arange(10) * 10**9,
    duration_ns=np.array([1e9] * 9 + [91e9]),
    num_ranks=np.ones(10, dtype=np.int64),
    num_spans=np.ones(10, dtype=np.int64),
)
FINDING = Finding(
    detector="",
    kind=Kind.COMPUTE_STRAGGLER,
    severity=Severity.WARNING,
    suspects=(),
    stage="",
    window=StepWindow(first_step=0, last_step=9),
    seconds_lost=0.0,
    confidence=1.0,
    summary="",
    next_step="",
)


def costs(first_step: int, last_step: int, lost_s: float) -> Finding:
    return replace(FINDING, window=StepWindow(first_step=first_step, last_step=last_step), seconds_lost=lost_s)


@each_case(
    ("findings", "lost_s"),
    [
        ([], 0),
        ([costs(0, 9, 40)], 40),
        ([costs(0, 3, 1), costs(4, 7, 2)], 3),
        ([costs(0, 7, 4), costs(0, 7, 6)], 6),
        ([costs(0, 7, 4), costs(6, 8, 2.4)], 6 * 0.5 + 3 * 0.8),
        ([costs(0, 9, 90), costs(9, 9, 90)], 9 * 0.9 + 90),
        ([costs(20, 30, 5), costs(20, 30, 4), costs(0, 3, 1)], 6),
    ],
)
def test_lost_time_counts_each_step_once_for_the_finding_with_the_largest_loss(
    findings: list[Finding], lost_s: float
) -> None:
    assert seconds_lost(findings, STEPS) == pytest.approx(lost_s)
    assert seconds_lost(findings, STEPS) <= STEPS.duration_ns.sum() / 1e9


def test_lost_time_of_a_stalled_job_can_exceed_the_time_of_its_steps() -> None:
    assert seconds_lost([costs(0, 9, 300), costs(0, 9, 40)], STEPS) == pytest.approx(300)


def numbers(reads: Reads, run_id: str) -> str:
    return in_words(draw_numbers(ViewState(view=View.OVERVIEW, run=run_id), reads))


def in_words(drawn: object) -> str:
    return json.dumps(drawn, cls=PlotlyJSONEncoder, ensure_ascii=False)


def test_list_of_runs_and_overview_show_the_same_step_time_and_mfu_of_the_same_steps() -> None:
    with memory_store() as store:
        run = SyntheticRun(run_id="slower")
        run.introduce(store)
        run.advance(store, 70)
        run.slow = {5: 3.0}
        run.advance(store, 15)
        reads = Reads(StoreReader(store))
        (row,) = run_list(reads).rows
        listed, overview = in_words(draw_runs(ViewState(), reads)), numbers(reads, "slower")
    assert row.step_time is not None
    assert row.mfu is not None
    for told in (duration(row.step_time.mean), f"{row.mfu.mean:.1%}", "mean of steps 50 to 84"):
        assert f'"{told}"' in listed
        assert f'"{told}"' in overview


def test_overview_counts_the_loss_of_two_findings_in_the_same_steps_once(
    reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = reads.facts(ViewState(run="made"))
    report = reads.reports.of(facts.summary)
    assert report is not None
    whole_s = facts.steps.duration_ns.sum() / 1e9
    first, last = int(facts.steps.step[0]), int(facts.steps.step[-1])
    twice = replace(report, findings=(costs(first, last, 0.75 * whole_s),) * 2)
    monkeypatch.setattr(reads.reports, "of", lambda run: twice)
    assert f'"{0.75 * whole_s:.1f} s"' in numbers(reads, "made")


def test_lost_time_is_unknown_if_only_the_excess_of_a_rank_is_known(
    reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = reads.reports.of(reads.facts(ViewState(run="made")).summary)
    assert report is not None
    excess = replace(costs(0, 3, 7.0), basis=Basis.EXCESS)
    monkeypatch.setattr(reads.reports, "of", lambda run: replace(report, findings=(excess,)))
    shown = numbers(reads, "made")
    assert '"unknown"' in shown
    assert "no cost is known for 1 finding" in shown
    monkeypatch.setattr(reads.reports, "of", lambda run: replace(report, findings=(excess, costs(0, 3, 1.0))))
    assert "sum over the findings; not known for 1 finding" in numbers(reads, "made")
