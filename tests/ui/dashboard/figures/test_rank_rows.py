"""Which ranks the heat map shows, in which order, and how their values are distributed."""

import numpy as np
import pytest

from telemetry.errors import UsageError
from telemetry.topology import Topology
from tests.each_case import each_case
from ui.dashboard.figures.distribution import NUM_BINS, distribution
from ui.dashboard.figures.rank_rows import ShownRanks, matching_ranks, shown_ranks
from ui.dashboard.view_state import RowOrder

GRID = Topology(dp=4, pp=2, tp=2)
HOSTS = tuple(f"gpu-{rank // 4:02d}" for rank in range(16))
MESH = Topology.parse("pp=2,dp_shard=2,cp=2,tp=2")
VALUE = np.array([1.0, 1.3, np.nan, 1.1, 1.3, 0.9])


def shown(*, order: RowOrder, top: int | None = None, suspects: tuple[int, ...] = ()) -> ShownRanks:
    return shown_ranks(VALUE, np.array([0, 1, 2, 3, 4]), order=order, top=top, suspects=suspects)


@each_case(
    ("only", "expected"),
    [
        ("", [*range(16)]),
        ("dp1", [4, 5, 6, 7]),
        ("dp1 pp0", [4, 5]),
        ("dp0 dp2-3 tp1", [1, 3, 9, 11, 13, 15]),
        ("GPU-03", [12, 13, 14, 15]),
        ("gpu-0 pp1 tp0", [2, 6, 10, 14]),
        ("3, 8-9", [3, 8, 9]),
        ("8-15 gpu-01 gpu-02", [8, 9, 10, 11]),
    ],
)
def test_filter_words_of_one_kind_are_alternatives_and_all_kinds_must_match(only: str, expected: list[int]) -> None:
    assert matching_ranks(only, GRID, HOSTS).tolist() == expected


def test_filter_accepts_mesh_axes_grid_directions_and_roles() -> None:
    roles = ["actor"] * 12 + ["reward"] * 4
    assert matching_ranks("dp_shard1 cp0 tp1", MESH, HOSTS).tolist() == [5, 13]
    assert matching_ranks("dp3", MESH, HOSTS).tolist() == [6, 7, 14, 15]
    assert matching_ranks("reward dp1", Topology(dp=2, tp=8), HOSTS, roles).tolist() == [12, 13, 14, 15]


@each_case("only", ["dp4", "gpu-9", "dp1 gpu-03", "16", "<b>"])
def test_filter_without_a_match_raises_an_error_that_lists_valid_words(only: str) -> None:
    with pytest.raises(UsageError, match="No rank matches") as error:
        matching_ranks(only, GRID, HOSTS)
    assert "dp0 to dp3, pp0 to pp1, tp0 to tp1" in error.value.hint


def test_order_by_value_puts_the_highest_first_keeps_ties_in_order_and_unknown_ranks_last() -> None:
    assert shown(order=RowOrder.VALUE).ranks.tolist() == [1, 4, 3, 0, 2]
    assert shown(order=RowOrder.RANK).ranks.tolist() == [0, 1, 2, 3, 4]


def test_a_limit_keeps_the_highest_values_and_every_suspect() -> None:
    assert shown(order=RowOrder.VALUE, top=2).ranks.tolist() == [1, 4]
    assert shown(order=RowOrder.VALUE, top=2, suspects=(0, 4)).ranks.tolist() == [1, 4, 0]
    assert shown(order=RowOrder.RANK, top=2, suspects=(0,)).ranks.tolist() == [0, 1, 4]
    assert shown(order=RowOrder.VALUE, top=99).ranks.tolist() == [1, 4, 3, 0, 2]


def test_suspects_outside_the_filter_are_reported() -> None:
    assert shown(order=RowOrder.VALUE, suspects=(5, 1)).hidden_suspects == (5,)


def test_a_distribution_counts_each_shown_rank_once_and_keeps_distant_ranks_apart() -> None:
    value = np.append(np.linspace(0.9, 1.1, 100), [1.5, np.nan, 7.0])
    found = distribution(value, np.arange(102), suspects=[100, 102])
    assert found is not None
    assert found.counts.sum() == found.num_ranks == 101
    assert (found.edges[0], found.edges[-1]) == (0.9, 1.5)
    assert (found.is_first_far, found.is_last_far, found.counts[-1]) == (False, True, 1)
    assert found.edges[-2] < 1.5
    assert np.diff(found.edges[:-1]) == pytest.approx((found.edges[-2] - 0.9) / NUM_BINS)
    assert (found.p50, found.p95) == tuple(np.percentile(value[:101], (50, 95)))
    assert (found.highest, found.last_ranks.tolist(), found.last_values.tolist()) == (1.5, [100], [1.5])
    assert (found.suspects.tolist(), found.suspect_values.tolist()) == ([100], [1.5])


def test_distribution_has_separate_bins_for_a_rank_far_below_and_a_rank_far_above() -> None:
    found = distribution(np.append(np.linspace(0.99, 1.01, 2046), [0.5, 1.4]), np.arange(2048), [])
    assert found is not None
    assert (found.is_first_far, found.is_last_far) == (True, True)
    assert (found.counts[0], found.counts[-1], len(found.counts)) == (1, 1, NUM_BINS + 2)
    assert found.counts[1:-1].max() < 100


def test_equal_values_have_one_bin_and_unknown_values_have_no_distribution() -> None:
    found = distribution(np.full(8, 40.0), np.arange(8), [])
    assert found is not None
    assert (found.counts.tolist(), found.highest) == ([8], 40.0)
    assert found.last_ranks.tolist() == [*range(8)]
    assert found.edges[1] > found.edges[0]
    assert distribution(np.full(8, np.nan), np.arange(8), [3]) is None
    mostly_equal = distribution(np.append(np.full(7, 40.0), 60.0), np.arange(8), [])
    assert mostly_equal is not None
    assert (mostly_equal.counts[0], mostly_equal.counts[-1]) == (7, 1)
