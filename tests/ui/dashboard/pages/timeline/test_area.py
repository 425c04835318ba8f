"""Statistics of a marked area."""

from telemetry.stages import Stage
from tests.ui.few_spans import made_spans
from ui.dashboard.pages.timeline.step_shares import ranks_within, statistics
from ui.dashboard.view_state import Area

SPANS = made_spans(
    (0, Stage.STEP, 1000, 1000),
    (0, Stage.FORWARD_COMPUTE, 1000, 100),
    (0, Stage.FORWARD_COMPUTE, 1200, 100),
    (1, Stage.FORWARD_COMPUTE, 1050, 300),
    (1, Stage.OPTIMIZER, 1500, 50),
    (2, Stage.FORWARD_COMPUTE, 1000, 1000),
)


def test_spans_within_are_counted_and_those_that_reach_beyond_are_cut() -> None:
    (forward,) = statistics(SPANS, Area(50, 250, 0, 1), (0, 1))
    assert (forward.stage, forward.count) == (Stage.FORWARD_COMPUTE, 3)
    assert (forward.total_ns, forward.mean_ns, forward.longest_ns) == (50 + 50 + 200, 100.0, 200)


def test_the_stage_with_the_most_time_comes_first() -> None:
    found = statistics(SPANS, Area(0, 1000, 0, 1), (0, 1))
    assert [(one.stage, one.count) for one in found] == [(Stage.FORWARD_COMPUTE, 3), (Stage.OPTIMIZER, 1)]


def test_nothing_lies_in_an_empty_area() -> None:
    assert statistics(SPANS, Area(600, 700, 0, 1), (0, 1)) == []
    assert statistics(made_spans(), Area(0, 700, 0, 1), (0, 1)) == []


def test_an_area_holds_the_rows_between_its_outer_ones_as_they_are_shown() -> None:
    assert ranks_within(Area(0, 1, 6, 2), (4, 6, 0, 2, 1)) == (6, 0, 2)
    assert ranks_within(Area(0, 1, 2, 6), (4, 6, 0, 2, 1)) == (6, 0, 2)
    assert ranks_within(Area(0, 1, 4, 9), (4, 6)) == ()
