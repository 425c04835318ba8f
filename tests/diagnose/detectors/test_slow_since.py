"""Collectives against their own past: those that rise, and not those that are merely alike."""

import numpy as np
import pytest

from diagnose.detectors.slow_places import Rises, find_rises
from diagnose.model.collectives import Collectives
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.made_operations import around
from tests.diagnose.made_view import make_view
from tests.diagnose.over_seeds import over_seeds

STEPS, ROW = 40, 15


def found_in(factors: list[float], seed: int = 0) -> Rises:
    """Of pairs that are all alike; each takes so many times as long from ROW on."""
    total_ns = around(5e6, (STEPS, len(factors)), jitter=0.05, seed=seed)
    total_ns[ROW:] *= np.array(factors)
    collectives = Collectives(
        stage=Stage.FORWARD_SEND,
        duration_ns=np.repeat(total_ns[:, None, :, None], 2, axis=3),
        ranks=np.arange(2 * len(factors)).reshape(-1, 2),
        alike=np.zeros(len(factors), dtype=np.int64),
    )
    view = make_view(Topology(dp=len(factors), pp=2), num_steps=STEPS, seed=seed)
    return find_rises(collectives, total_ns, view)


def rises_of(factors: list[float], seed: int = 0) -> dict[int, tuple[int, float]]:
    return {column: (one.row, one.ratio) for column, one in found_in(factors, seed).slow.items()}


@over_seeds(range(5))
def test_only_those_that_rise_themselves_are_told(seed: int) -> None:
    found = rises_of([1.0, 9.0, 9.0, 1.0], seed)
    assert list(found) == [1, 2]
    assert all(row == ROW for row, _ in found.values())


@over_seeds(range(5))
def test_those_that_all_rise_are_all_told(seed: int) -> None:
    found = rises_of([4.0, 4.0, 4.0], seed)
    assert list(found) == [0, 1, 2]
    assert all(ratio == pytest.approx(4.0, rel=0.1) for _, ratio in found.values())


@over_seeds(range(10))
def test_none_is_told_where_none_rises(seed: int) -> None:
    assert rises_of([1.0] * 4, seed) == {}


@over_seeds(range(5))
def test_what_rises_less_than_those_alike_has_moved_all_the_same(seed: int) -> None:
    found = found_in([9.0, 9.0, 2.0, 1.0], seed)
    assert set(found.slow) == {0, 1}
    assert found.moved == {0, 1, 2}


@over_seeds(range(5))
def test_what_rises_alone_has_moved(seed: int) -> None:
    found = found_in([1.0, 1.0, 9.0], seed)
    assert found.slow == {}
    assert found.moved == {2}
