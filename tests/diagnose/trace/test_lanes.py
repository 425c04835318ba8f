"""Lanes keep the slices of a track nested."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagnose.trace.drawing import lanes_of, nesting_order

SLICES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15)), max_size=40)


def lanes(*slices: tuple[int, int], nests: bool = True) -> list[int]:
    """Lane of each slice, given as start and end in nesting order."""
    start, end = np.array(slices, dtype=np.int64).reshape(-1, 2).T
    assert nesting_order(start, end).tolist() == list(range(len(start)))
    return lanes_of(start, end, nests=nests).tolist()


def test_slices_that_follow_each_other_share_a_lane() -> None:
    assert lanes((0, 10), (10, 20), (25, 30)) == [0, 0, 0]


def test_a_slice_inside_another_shares_its_lane() -> None:
    assert lanes((0, 30), (0, 10), (10, 20), (12, 14), (30, 31)) == [0, 0, 0, 0, 0]


def test_partially_overlapping_slice_takes_another_lane() -> None:
    assert lanes((0, 10), (5, 15), (6, 9), (12, 20)) == [0, 1, 0, 0]


def test_slice_inside_another_takes_another_lane_when_slices_do_not_nest() -> None:
    assert lanes((0, 30), (0, 10), (10, 20), (30, 31), nests=False) == [0, 1, 1, 0]


@given(SLICES, st.booleans())
def test_no_lane_holds_a_partial_overlap(slices: list[tuple[int, int]], nests: bool) -> None:
    start = np.array([first for first, _ in slices], dtype=np.int64)
    end = start + np.array([length for _, length in slices], dtype=np.int64)
    order = nesting_order(start, end)
    start, end = start[order], end[order]
    found = lanes_of(start, end, nests=nests)
    for lane in range(int(found.max(initial=-1)) + 1):
        mine = np.flatnonzero(found == lane).tolist()
        for number, a in enumerate(mine):
            for b in mine[number + 1 :]:
                assert end[a] <= start[b] or (nests and end[b] <= end[a]), (slices, a, b)
