"""Statistics of a marked area."""

from telemetry.stages import Stage
from tests.each_case import each_case
from tests.ui.few_spans import made_spans
from ui.dashboard.pages.timeline.area import time_range
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


def test_area_statistics_count_spans_and_cut_them_at_the_edges() -> None:
    (forward,) = statistics(SPANS, Area(50, 250, 0, 1), (0, 1))
    assert (forward.stage, forward.count) == (Stage.FORWARD_COMPUTE, 3)
    assert (forward.total_ns, forward.mean_ns, forward.longest_ns) == (50 + 50 + 200, 100.0, 200)


def test_area_statistics_list_the_stage_with_the_most_time_first() -> None:
    found = statistics(SPANS, Area(0, 1000, 0, 1), (0, 1))
    assert [(one.stage, one.count) for one in found] == [(Stage.FORWARD_COMPUTE, 3), (Stage.OPTIMIZER, 1)]


def test_area_without_spans_has_no_statistics() -> None:
    assert statistics(SPANS, Area(600, 700, 0, 1), (0, 1)) == []
    assert statistics(made_spans(), Area(0, 700, 0, 1), (0, 1)) == []


def test_area_contains_the_ranks_between_its_outer_rows_in_displayed_order() -> None:
    assert ranks_within(Area(0, 1, 6, 2), (4, 6, 0, 2, 1)) == (6, 0, 2)
    assert ranks_within(Area(0, 1, 2, 6), (4, 6, 0, 2, 1)) == (6, 0, 2)
    assert ranks_within(Area(0, 1, 4, 9), (4, 6)) == ()


@each_case(
    ("first_ns", "last_ns", "text"),
    [
        (100_000_000, 300_000_000, "100 to 300 ms"),
        (0, 1_250_000_000, "0 to 1250 ms"),
        (12_000_000, 14_000_000, "12.0 to 14.0 ms"),
        (2_250_000_000, 2_310_000_000, "2.250 to 2.310 s"),
        (100, 900, "100 to 900 ns"),
    ],
)
def test_time_range_has_one_unit_and_shows_the_difference(first_ns: int, last_ns: int, text: str) -> None:
    assert time_range(first_ns, last_ns) == text
