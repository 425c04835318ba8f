from itertools import product

import numpy as np
import pytest

from diagnose.detectors.data_stall import detect_data_stall
from diagnose.findings import Kind, Severity
from diagnose.model.view import RunView
from telemetry.topology import Topology
from tests.diagnose.made_operations import GRIDS, FloatArray, around, with_operations
from tests.diagnose.made_view import make_view
from tests.diagnose.over_seeds import over_seeds
from tests.each_case import each_case

STEP_NS = 240e6
TINY_NS = 0.1e6
NUM_STEPS = 40
SEEDS = range(25)


def loads(topology: Topology, seed: int, typical_ns: float = TINY_NS, jitter: float = 0.3) -> FloatArray:
    return around(typical_ns, (NUM_STEPS, topology.world_size), jitter=jitter, seed=seed)


def view_of(load_ns: FloatArray, topology: Topology) -> RunView:
    return with_operations(make_view(topology, num_steps=NUM_STEPS), data_load=load_ns)


def some_rank(topology: Topology, seed: int) -> int:
    return int(np.random.default_rng(seed).integers(topology.world_size))


@each_case(("topology", "typical_ns"), list(product(GRIDS, [0.1e6, 2e6])))
@over_seeds(SEEDS)
def test_a_healthy_run_yields_nothing(topology: Topology, typical_ns: float, seed: int) -> None:
    assert detect_data_stall(view_of(loads(topology, seed, typical_ns), topology)) == []


@each_case(("topology", "typical_ns"), list(product(GRIDS, [0.1e6, 1e6, 3e6])))
@over_seeds(SEEDS)
def test_heavy_jitter_yields_nothing(topology: Topology, typical_ns: float, seed: int) -> None:
    assert detect_data_stall(view_of(loads(topology, seed, typical_ns, jitter=1.0), topology)) == []


@each_case("typical_ns", [10e6, 50e6])
@each_case("topology", [*GRIDS, Topology(dp=2)])
@over_seeds(SEEDS)
def test_long_noisy_loads_on_all_ranks_name_no_rank(topology: Topology, typical_ns: float, seed: int) -> None:
    findings = detect_data_stall(view_of(loads(topology, seed, typical_ns, jitter=0.7), topology))
    assert [finding.ranks for finding in findings] in ([], [[]])


@each_case(("topology", "stall_ns"), list(product(GRIDS, [12e6, 60e6, 1e9])))
@over_seeds(range(6))
def test_only_the_rank_with_long_loads_is_named(topology: Topology, stall_ns: float, seed: int) -> None:
    load_ns, culprit = loads(topology, seed), some_rank(topology, seed)
    load_ns[15:, culprit] += stall_ns
    (finding,) = detect_data_stall(view_of(load_ns, topology))
    assert finding.kind is Kind.DATA_STALL
    assert finding.ranks == [culprit]
    assert (finding.window.first_step, finding.window.last_step) == (115, 139)
    assert finding.seconds_lost == pytest.approx(25 * stall_ns / 1e9, rel=0.02)
    assert "25 of 40 steps, first in step 115" in finding.summary


@each_case("topology", GRIDS)
@over_seeds(range(6))
def test_five_long_loads_of_one_rank_are_reported_as_critical(topology: Topology, seed: int) -> None:
    load_ns, culprit = loads(topology, seed), some_rank(topology, seed)
    load_ns[[8, 14, 15, 27, 31], culprit] += 1e9
    (finding,) = detect_data_stall(view_of(load_ns, topology))
    assert finding.ranks == [culprit]
    assert finding.severity is Severity.CRITICAL
    assert finding.evidence["steps"] == [108, 114, 115, 127, 131]


def test_rank_with_the_longest_loads_is_named_when_all_ranks_load_slowly() -> None:
    load_ns = loads(GRIDS[1], 0, typical_ns=20e6)
    load_ns[:, 37] *= 3.0
    assert [finding.ranks for finding in detect_data_stall(view_of(load_ns, GRIDS[1]))] == [[], [37]]


@each_case("topology", GRIDS)
@each_case("rows", [slice(10, None), [5, 11, 12, 30]])
@over_seeds(range(5))
def test_loads_long_on_all_ranks_at_once_name_no_rank(topology: Topology, rows: slice | list[int], seed: int) -> None:
    load_ns = loads(topology, seed)
    load_ns[rows] += 200e6
    (finding,) = detect_data_stall(view_of(load_ns, topology))
    assert finding.suspects == ()
    assert "most ranks at the same time" in finding.summary


@each_case("num_stalls", [1, 2])
@each_case("everywhere", [True, False])
def test_a_slow_first_load_yields_nothing(num_stalls: int, everywhere: bool) -> None:
    load_ns = loads(GRIDS[0], 0)
    load_ns[:num_stalls, : None if everywhere else 1] += 5e9
    assert detect_data_stall(view_of(load_ns, GRIDS[0])) == []


@each_case("num_stalls", [1, 2])
@each_case("everywhere", [True, False])
def test_one_or_two_very_long_loads_among_slightly_long_ones_yield_nothing(num_stalls: int, everywhere: bool) -> None:
    load_ns = loads(GRIDS[0], 0)
    ranks = slice(None) if everywhere else 5
    load_ns[[2, 3, 4, 8], ranks] += 0.03 * STEP_NS
    load_ns[20 : 20 + num_stalls, ranks] += 5e9
    assert detect_data_stall(view_of(load_ns, GRIDS[0])) == []


def test_stalls_of_negligible_cost_yield_nothing() -> None:
    load_ns = loads(GRIDS[0], 0)
    load_ns[[3, 17, 33], 5] += 0.03 * STEP_NS
    assert detect_data_stall(view_of(load_ns, GRIDS[0])) == []


def test_short_loads_that_take_ten_times_longer_on_one_rank_yield_nothing() -> None:
    load_ns = loads(GRIDS[0], 0)
    load_ns[:, 5] *= 10
    assert detect_data_stall(view_of(load_ns, GRIDS[0])) == []


@each_case("absent", [True, False])
@each_case("topology", [Topology(dp=2, pp=2, tp=2), Topology(dp=8, pp=2, tp=4)])
def test_ranks_that_load_for_their_tensor_group_are_not_named(topology: Topology, absent: bool) -> None:
    load_ns = loads(topology, 0, typical_ns=4.5e6, jitter=0.05)
    others = np.arange(topology.world_size) % topology.tp > 0
    load_ns[:, others] = np.nan if absent else 0.01e6
    load_ns[:, ~others] *= 3.0
    assert [finding.ranks for finding in detect_data_stall(view_of(load_ns, topology))] == [[]]


def test_long_loads_on_all_ranks_of_a_host_are_one_finding() -> None:
    load_ns = loads(GRIDS[1], 0)
    load_ns[20:, 16:24] += 50e6
    (finding,) = detect_data_stall(view_of(load_ns, GRIDS[1]))
    assert finding.ranks == list(range(16, 24))
    assert finding.summary.startswith("host gpu-02 (ranks 16-23)")


def test_two_ranks_that_stall_are_two_findings() -> None:
    load_ns = loads(GRIDS[0], 0)
    load_ns[10:, [0, 6]] += 50e6
    assert [finding.ranks for finding in detect_data_stall(view_of(load_ns, GRIDS[0]))] == [[0], [6]]


def test_stalls_of_the_only_rank_are_found_by_comparison_with_its_past() -> None:
    load_ns = loads(Topology(), 0)
    load_ns[[8, 14, 15, 27, 31]] += 1e9
    (finding,) = detect_data_stall(view_of(load_ns, Topology()))
    assert finding.evidence["stalled_steps"] == 5


def test_rank_that_loads_for_the_only_tensor_group_yields_nothing() -> None:
    load_ns = loads(Topology(tp=4), 0, jitter=0.05)
    load_ns[:, 0] = 30e6
    assert detect_data_stall(view_of(load_ns, Topology(tp=4))) == []


def test_a_run_without_loads_yields_nothing() -> None:
    assert detect_data_stall(make_view(GRIDS[0])) == []
