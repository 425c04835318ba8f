"""Collectives are compared with their own past: only those that become slower are reported."""

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
    """Rises of pairs that are all alike. From ROW on, the time of each pair is multiplied by its factor."""
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
def test_only_pairs_that_become_slower_are_reported(seed: int) -> None:
    found = rises_of([1.0, 9.0, 9.0, 1.0], seed)
    assert list(found) == [1, 2]
    assert all(row == ROW for row, _ in found.values())


@over_seeds(range(5))
def test_all_pairs_are_reported_when_all_become_slower(seed: int) -> None:
    found = rises_of([4.0, 4.0, 4.0], seed)
    assert list(found) == [0, 1, 2]
    assert all(ratio == pytest.approx(4.0, rel=0.1) for _, ratio in found.values())


@over_seeds(range(10))
def test_no_pair_is_reported_when_none_becomes_slower(seed: int) -> None:
    assert rises_of([1.0] * 4, seed) == {}


@over_seeds(range(5))
def test_pair_that_slows_down_less_than_its_peers_counts_as_moved_but_not_slow(seed: int) -> None:
    found = found_in([9.0, 9.0, 2.0, 1.0], seed)
    assert set(found.slow) == {0, 1}
    assert found.moved == {0, 1, 2}


@over_seeds(range(5))
def test_single_pair_that_becomes_slower_counts_as_moved_but_not_slow(seed: int) -> None:
    found = found_in([1.0, 1.0, 9.0], seed)
    assert found.slow == {}
    assert found.moved == {2}
