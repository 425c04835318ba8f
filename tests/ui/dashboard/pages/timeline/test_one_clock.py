"""Spans of several hosts on one clock, and what is said beside them."""

from telemetry.clocks.align_evidence import REFERENCE, ClockTable, HostClock
from telemetry.stages import Stage
from tests.ui.few_spans import made_spans
from ui.dashboard.pages.timeline.selection import on_one_clock

SECOND = 1_000_000_000
HOSTS = ("a", "a", "b")
STEP = made_spans((0, Stage.STEP, 0, 100), (1, Stage.STEP, 5, 100), (2, Stage.STEP, 3 * SECOND, 100))


def clocks(*, bound_ns: int = 40_000) -> ClockTable:
    return ClockTable(
        [
            HostClock(host="a", reference="a", bound_ns=0, method=REFERENCE),
            HostClock(
                host="b", reference="a", first_ns=0, last_ns=60 * SECOND, offset_ns=3 * SECOND - 7, bound_ns=bound_ns,
                method="ends",
            ),
        ]
    )  # fmt: skip


def test_stamps_are_shifted_and_the_bound_is_told() -> None:
    drawn = on_one_clock(STEP, HOSTS, clocks())
    assert drawn.spans.start_ns.tolist() == [0, 5, 7]
    assert drawn.note == "Clocks of 2 hosts aligned within ±40 µs."


def test_stamps_stay_raw_where_nothing_is_known_and_that_is_told() -> None:
    drawn = on_one_clock(STEP, HOSTS, ClockTable())
    assert drawn.spans.start_ns.tolist() == STEP.start_ns.tolist()
    assert "not aligned" in drawn.note


def test_a_host_that_is_refused_is_named() -> None:
    spans = made_spans((0, Stage.STEP, 0, 9), (2, Stage.STEP, 3 * SECOND, 9), (3, Stage.STEP, 5, 9))
    drawn = on_one_clock(spans, (*HOSTS, "c"), clocks())
    assert drawn.spans.start_ns.tolist() == [0, 7, 5]
    assert drawn.note.startswith("Clock of c not aligned")


def test_one_host_needs_no_word() -> None:
    assert on_one_clock(STEP.where(STEP.rank < 2), HOSTS, ClockTable()).note == ""


def test_a_host_that_is_refused_has_a_clock_of_its_own() -> None:
    spans = made_spans((0, Stage.STEP, 0, 9), (2, Stage.STEP, 3 * SECOND, 9), (3, Stage.STEP, 5, 9))
    assert on_one_clock(spans, (*HOSTS, "c"), clocks()).clocks_of((*HOSTS, "c")).tolist() == [0, 0, 1]
    assert sorted(on_one_clock(spans, (*HOSTS, "c"), ClockTable()).clocks_of((*HOSTS, "c")).tolist()) == [1, 2, 3]
