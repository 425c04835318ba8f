"""Spans of several hosts on one clock, and the note about their alignment."""

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


def test_start_times_are_shifted_to_one_clock_and_the_bound_is_reported() -> None:
    drawn = on_one_clock(STEP, HOSTS, clocks())
    assert drawn.spans.start_ns.tolist() == [0, 5, 7]
    assert drawn.note == "Clocks of 2 hosts aligned within ±40 µs."


def test_start_times_stay_raw_without_clock_estimates_and_a_note_reports_it() -> None:
    drawn = on_one_clock(STEP, HOSTS, ClockTable())
    assert drawn.spans.start_ns.tolist() == STEP.start_ns.tolist()
    assert "not aligned" in drawn.note


def test_unaligned_host_is_named_in_the_note() -> None:
    spans = made_spans((0, Stage.STEP, 0, 9), (2, Stage.STEP, 3 * SECOND, 9), (3, Stage.STEP, 5, 9))
    drawn = on_one_clock(spans, (*HOSTS, "c"), clocks())
    assert drawn.spans.start_ns.tolist() == [0, 7, 5]
    assert drawn.note.startswith("Clock of c not aligned")


def test_host_that_has_only_an_open_stage_is_part_of_the_alignment() -> None:
    opened = {"b": (3 * SECOND, 3 * SECOND)}
    only_a, none = STEP.where(STEP.rank < 2), STEP.where(STEP.rank < 0)
    assert on_one_clock(only_a, HOSTS, clocks(), opened).note == "Clocks of 2 hosts aligned within ±40 µs."
    assert on_one_clock(none, HOSTS, clocks(), {"a": (0, 0), **opened}).alignment.num_hosts == 2
    assert on_one_clock(only_a, HOSTS, ClockTable(), opened).note.startswith("Clocks of 2 hosts are not aligned")


def test_note_is_empty_for_one_host() -> None:
    assert on_one_clock(STEP.where(STEP.rank < 2), HOSTS, ClockTable()).note == ""


def test_unaligned_host_has_its_own_clock() -> None:
    spans = made_spans((0, Stage.STEP, 0, 9), (2, Stage.STEP, 3 * SECOND, 9), (3, Stage.STEP, 5, 9))
    known = on_one_clock(spans, (*HOSTS, "c"), clocks()).clocks_of((*HOSTS, "c"))
    assert (known.clock.tolist(), len(set(known.host.tolist()))) == ([0, 0, 1], 3)
    unknown = on_one_clock(spans, (*HOSTS, "c"), ClockTable()).clocks_of((*HOSTS, "c"))
    assert sorted(unknown.clock.tolist()) == [1, 2, 3]


def test_ranks_of_one_host_have_the_same_host_number() -> None:
    found = on_one_clock(STEP, HOSTS, clocks()).clocks_of(HOSTS)
    assert found.host[0] == found.host[1] != found.host[2]
