"""The row of a run, and the order of rows."""

from dataclasses import replace

from diagnose.findings import Severity
from diagnose.model.recent_steps import RecentMean
from diagnose.model.run_state import RunState
from tests.each_case import each_case
from ui.dashboard.data.run_rows import OpenFindings, RunRow, ordered
from ui.dashboard.view_state import RunOrder

S = 1_000_000_000
NOW_NS = 1_790_000_000 * S


def mean(value: float) -> RecentMean:
    return RecentMean(mean=value, first_step=0, last_step=9)


ROW = RunRow(
    run_id="run",
    attempt=0,
    num_attempts=1,
    state=RunState.LIVE,
    what="",
    topology=None,
    num_ranks=8,
    last_step=9,
    step_time=mean(1e9),
    mfu=mean(0.4),
    goodput=0.9,
    findings=None,
    started_ns=NOW_NS - 600 * S,
    heard_ns=NOW_NS,
)


def test_order_by_trouble_puts_problems_first_and_old_problems_last() -> None:
    bad = OpenFindings(count=1, severity=Severity.CRITICAL)
    rows = [
        replace(ROW, run_id="died long ago", state=RunState.DIED, heard_ns=NOW_NS - 90_000 * S),
        replace(ROW, run_id="ended", state=RunState.ENDED),
        replace(ROW, run_id="living", findings=OpenFindings(count=0)),
        replace(ROW, run_id="silent", state=RunState.SILENT),
        replace(ROW, run_id="slow", findings=replace(bad, severity=Severity.WARNING)),
        replace(ROW, run_id="critical", findings=bad),
        replace(ROW, run_id="stalled", state=RunState.STALLED),
        replace(ROW, run_id="died", state=RunState.DIED),
    ]
    assert [row.run_id for row in ordered(rows, RunOrder.TROUBLE, NOW_NS)] == [
        "died", "stalled", "critical", "slow", "silent", "living", "ended", "died long ago",
    ]  # fmt: skip


@each_case(
    ("order", "first"),
    [(RunOrder.MFU, "low"), (RunOrder.GOODPUT, "low"), (RunOrder.STEP_TIME, "low"), (RunOrder.NAME, "high")],
)
def test_order_puts_the_worst_run_first_and_unknown_values_last(order: RunOrder, first: str) -> None:
    rows = [
        replace(ROW, run_id="unknown", mfu=None, goodput=None, step_time=None),
        replace(ROW, run_id="high", mfu=mean(0.5), goodput=0.95, step_time=mean(1e9)),
        replace(ROW, run_id="low", mfu=mean(0.2), goodput=0.4, step_time=mean(3e9)),
    ]
    found = [row.run_id for row in ordered(rows, order, NOW_NS)]
    assert found[0] == first
    assert found[-1] == "unknown"
