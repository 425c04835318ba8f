from dataclasses import replace

import numpy as np
import pytest

from diagnose.detectors.late_launch import _usual_start, detect_late_launch
from diagnose.findings import Kind, Role, Severity
from diagnose.model.view import Basis, RunView, Work
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.made_collectives import GRIDS, Delays, Floats, as_operations, make_collective_view
from tests.diagnose.over_seeds import over_seeds
from tests.each_case import each_case

SMALL, MIDDLE, FLAT, NO_TP = GRIDS
TWO = Topology(dp=2)


def of_rank(topology: Topology, rank: int, ns: float, from_row: int = 0, num_steps: int = 40) -> Floats:
    late = np.zeros((num_steps, topology.world_size))
    late[from_row:, rank] = ns
    return late


def bursts(topology: Topology, ranks: list[int], ns: float, every: float, seed: int, num_steps: int = 40) -> Floats:
    """Delays of each of the ranks independently, at random in one of ``every`` steps."""
    random = np.random.default_rng(seed + 500)
    late = np.zeros((num_steps, len(ranks)))
    late.flat[random.choice(late.size, round(late.size / every), replace=False)] = ns
    everywhere = np.zeros((num_steps, topology.world_size))
    everywhere[:, ranks] = late
    return everywhere


def growing(topology: Topology, until_ns: float, seed: int, num_steps: int = 120) -> Floats:
    """Random delays of all ranks. Their upper limit grows to ``until_ns`` at the end of the window."""
    random = np.random.default_rng(seed + 900)
    return random.uniform(0, 1, (num_steps, topology.world_size)) * np.linspace(0, until_ns, num_steps)[:, None]


@each_case("topology", [*GRIDS, TWO])
@over_seeds(range(10))
def test_a_healthy_run_yields_nothing(topology: Topology, seed: int) -> None:
    assert detect_late_launch(make_collective_view(topology, seed=seed)) == []


@each_case("topology", [*GRIDS, TWO])
@each_case("jitter", [0.3, 1.0])
@each_case("launch_jitter_ns", [0.5e6, 15e6])
@over_seeds(range(10))
def test_heavy_jitter_yields_nothing(topology: Topology, jitter: float, launch_jitter_ns: float, seed: int) -> None:
    view = make_collective_view(topology, jitter=jitter, launch_jitter_ns=launch_jitter_ns, seed=seed)
    assert detect_late_launch(view) == []


@each_case("topology", [SMALL, TWO])
@each_case("delay", ["before_launch", "before_compute"])
@over_seeds(range(15))
def test_no_rank_is_named_while_all_ranks_are_late_at_random(topology: Topology, delay: str, seed: int) -> None:
    late = np.zeros((40, topology.world_size))
    late[10:22] = np.random.default_rng(seed).exponential(60e6, late[10:22].shape)
    assert detect_late_launch(make_collective_view(topology, delays=Delays(**{delay: late}), seed=seed)) == []


@each_case("topology", [*GRIDS, TWO])
@each_case("late_ns", [25e6, 80e6])
@over_seeds(range(5))
def test_only_the_late_rank_is_named(topology: Topology, late_ns: float, seed: int) -> None:
    culprit = int(np.random.default_rng(seed).integers(topology.world_size))
    delays = Delays(before_launch=of_rank(topology, culprit, late_ns))
    (finding,) = detect_late_launch(make_collective_view(topology, delays=delays, seed=seed))
    assert finding.kind is Kind.LATE_LAUNCH
    assert finding.ranks == [culprit]
    assert finding.evidence["late_ms"] == pytest.approx(late_ns / 1e6, rel=0.35)
    assert finding.summary.startswith(f"rank {culprit} (host")


@each_case("topology", [*GRIDS, TWO])
@over_seeds(range(5))
def test_rank_that_delays_its_replica_is_named_and_the_rest_of_the_replica_are_victims(
    topology: Topology, seed: int
) -> None:
    culprit = int(np.random.default_rng(seed).integers(topology.world_size))
    delays = Delays(before_compute=of_rank(topology, culprit, 60e6))
    (finding,) = detect_late_launch(make_collective_view(topology, delays=delays, seed=seed))
    assert finding.ranks == [culprit]
    inside = topology.pp * topology.tp
    first = culprit // inside * inside
    assert {one.rank for one in finding.suspects if one.role is Role.VICTIM} == {*range(first, first + inside)} - {
        culprit
    }


@over_seeds(range(5))
def test_late_replica_without_a_known_culprit_names_no_rank(seed: int) -> None:
    late = of_rank(MIDDLE, 0, 0.0)
    late[:, 16:24] = 60e6
    (finding,) = detect_late_launch(make_collective_view(MIDDLE, delays=Delays(before_compute=late), seed=seed))
    assert finding.ranks == []
    assert {(one.rank, one.role) for one in finding.suspects} == {(rank, Role.UNKNOWN) for rank in range(16, 24)}
    assert finding.summary.startswith("replica dp2 (ranks 16-23)")


@over_seeds(range(5))
def test_host_with_all_ranks_late_is_one_finding(seed: int) -> None:
    late = np.zeros((40, 16))
    late[:, 4:8] = 60e6  # hosts of four ranks
    (finding,) = detect_late_launch(make_collective_view(FLAT, delays=Delays(before_launch=late), seed=seed))
    assert finding.ranks == [4, 5, 6, 7]
    assert finding.summary.startswith("host gpu-01 (ranks 4-7)")


@over_seeds(range(5))
def test_finding_starts_at_the_first_late_step_when_lateness_begins_mid_window(seed: int) -> None:
    delays = Delays(before_launch=of_rank(SMALL, 5, 50e6, from_row=20))
    (finding,) = detect_late_launch(make_collective_view(SMALL, delays=delays, seed=seed))
    assert abs(finding.window.first_step - 120) <= 1
    assert f"since step {finding.window.first_step}" in finding.summary


@each_case("topology", GRIDS)
@each_case("basis", Basis)
@each_case("factor", [1.3, 2.0])
@over_seeds(range(5))
def test_rank_late_because_of_its_compute_time_is_not_a_late_launch(
    topology: Topology, basis: Basis, factor: float, seed: int
) -> None:
    culprit = int(np.random.default_rng(seed).integers(topology.world_size))
    view = with_basis(make_collective_view(topology, slow={culprit: factor}, seed=seed), basis)
    assert detect_late_launch(view) == []


def with_basis(view: RunView, basis: Basis) -> RunView:
    work = {stage: Work(ns=one.ns, basis=basis) for stage, one in view.work.items()}
    return replace(view, work=work)


@each_case("topology", [MIDDLE, NO_TP])
@over_seeds(range(5))
def test_heavy_pipeline_stage_is_not_a_late_launch(topology: Topology, seed: int) -> None:
    assert detect_late_launch(make_collective_view(topology, heavy_stage={topology.pp - 1: 2.0}, seed=seed)) == []


@over_seeds(range(5))
def test_rank_kept_off_its_core_is_not_a_late_launch(seed: int) -> None:
    off = of_rank(FLAT, 3, 60e6)
    view = with_basis(make_collective_view(FLAT, delays=Delays(before_launch=off), seed=seed), Basis.PROCESSOR_TIME)
    assert len(detect_late_launch(replace(view, off_cpu={Stage.FORWARD_COMPUTE: np.zeros_like(off)}))) == 1
    assert detect_late_launch(replace(view, off_cpu={Stage.FORWARD_COMPUTE: off})) == []


@pytest.mark.parametrize("stage", [Stage.DATA_LOAD, Stage.CHECKPOINT_SNAPSHOT])
def test_rank_that_loads_data_or_saves_a_checkpoint_is_not_a_late_launch(stage: Stage) -> None:
    late = of_rank(SMALL, 3, 60e6)
    view = make_collective_view(SMALL, delays=Delays(before_compute=late))
    loading = as_operations(1e6 + late[:, None], np.zeros((40, 1, 8)))
    assert detect_late_launch(replace(view, operations={**view.operations, stage: loading})) == []


@each_case("topology", GRIDS)
@over_seeds(range(8))
def test_rank_with_irregular_garbage_collections_is_named(topology: Topology, seed: int) -> None:
    culprit = int(np.random.default_rng(seed).integers(topology.world_size))
    delays = Delays(gc=bursts(topology, [culprit], 80e6, every=2.5, seed=seed))
    (finding,) = detect_late_launch(make_collective_view(topology, delays=delays, seed=seed))
    assert finding.ranks == [culprit]
    assert "gc in " in finding.summary
    assert "garbage collection on all ranks in the same step" in finding.next_step


@each_case("topology", GRIDS)
@over_seeds(range(8))
def test_random_garbage_collections_on_all_ranks_name_no_suspect(topology: Topology, seed: int) -> None:
    delays = Delays(
        gc=bursts(topology, list(range(topology.world_size)), 60e6, every=1.5 * topology.world_size, seed=seed)
    )
    (finding,) = detect_late_launch(make_collective_view(topology, delays=delays, seed=seed))
    assert finding.suspects == ()
    assert "the last replica changes" in finding.summary
    assert finding.evidence["late_launches_with_gc"] >= 3
    assert finding.evidence["late_launches_with_gc"] == pytest.approx(finding.evidence["late_launches"], rel=0.25)


def test_usual_start_is_the_median_of_replicas_without_gc_or_else_the_earliest_start() -> None:
    behind_ns = np.array([[0.0, 20.0, 10.0, 500.0], [500.0, 0.0, 20.0, 10.0], [2.0, 1.0, 3.0, 4.0]])
    without_gc = np.array([[True, True, True, False], [False, True, True, True], [False] * 4])
    assert _usual_start(behind_ns, without_gc).tolist() == [[10.0], [10.0], [1.0]]


def test_rank_with_garbage_collections_inside_compute_is_named() -> None:
    """CPU time of a garbage collection inside forward is not compute time of the rank."""
    collected = bursts(FLAT, [7], 80e6, every=2.5, seed=1)
    view = make_collective_view(FLAT, delays=Delays(gc=collected), seed=1)
    view.work[Stage.FORWARD_COMPUTE].ns[:] += collected
    (finding,) = detect_late_launch(view)
    assert finding.ranks == [7]


@over_seeds(range(5))
def test_garbage_collections_on_all_ranks_in_the_same_step_yield_nothing(seed: int) -> None:
    together = np.zeros((40, 16))
    together[::5] = 80e6
    assert detect_late_launch(make_collective_view(FLAT, delays=Delays(gc=together), seed=seed)) == []


@over_seeds(range(5))
def test_lateness_in_the_step_of_a_planned_gc_is_not_attributed_to_the_gc(seed: int) -> None:
    random = np.random.default_rng(seed)
    together, late = np.zeros((40, 16)), np.zeros((40, 16))
    together[::5] = 80e6
    late[np.arange(0, 40, 5), random.permutation(16)[:8]] = 120e6
    view = make_collective_view(FLAT, delays=Delays(gc=together, before_launch=late), seed=seed)
    assert detect_late_launch(view) == []


@over_seeds(range(10))
def test_constant_spread_among_all_replicas_is_not_a_late_launch(seed: int) -> None:
    late = np.zeros((40, 16)) + np.random.default_rng(seed).uniform(0, 60e6, 16)
    assert detect_late_launch(make_collective_view(FLAT, delays=Delays(before_launch=late), seed=seed)) == []


@each_case("topology", [SMALL, MIDDLE])
@over_seeds(range(3))
def test_rank_with_a_gap_before_the_first_span_of_a_step_is_named(topology: Topology, seed: int) -> None:
    view = make_collective_view(topology, delays=Delays(before_compute=of_rank(topology, 3, 60e6)), seed=seed)
    known = {stage: one for stage, one in view.operations.items() if stage is not Stage.PARAMS_ALL_GATHER}
    (finding,) = detect_late_launch(replace(view, operations=known))
    assert finding.ranks == [3]


@over_seeds(range(5))
def test_late_rank_that_also_computes_longer_is_not_named(seed: int) -> None:
    delays = Delays(before_launch=of_rank(FLAT, 5, 80e6))
    (finding,) = detect_late_launch(make_collective_view(FLAT, slow={5: 1.1}, delays=delays, seed=seed))
    assert finding.ranks == []


def test_garbage_collections_of_negligible_cost_are_not_reported() -> None:
    assert detect_late_launch(make_collective_view(FLAT, delays=Delays(gc=bursts(FLAT, [7], 15e6, 8, seed=0)))) == []


@each_case("topology", [TWO, FLAT, MIDDLE])
@over_seeds(range(8))
def test_launch_offsets_that_grow_over_time_are_reported_without_a_suspect(topology: Topology, seed: int) -> None:
    delays = Delays(before_launch=growing(topology, 120e6, seed))
    (finding,) = detect_late_launch(make_collective_view(topology, delays=delays, num_steps=120, seed=seed))
    assert finding.suspects == ()
    assert "the difference grows from" in finding.summary
    assert finding.evidence["slope_of_step_time_per_step"] > 0
    assert finding.evidence["replicas_that_were_last"] > 1


def test_summary_says_normal_compute_time_only_if_it_matches_the_peers() -> None:
    delays = Delays(before_launch=of_rank(TWO, 1, 80e6))
    (alike,) = detect_late_launch(make_collective_view(TWO, delays=delays))
    (longer,) = detect_late_launch(make_collective_view(TWO, delays=delays, slow={1: 1.3}))
    assert "although its compute time is normal" in alike.summary
    assert "its compute takes 1.3" in longer.summary
    assert longer.ranks == []


def test_lost_time_is_the_wait_that_the_late_rank_causes() -> None:
    view = make_collective_view(SMALL, delays=Delays(before_launch=of_rank(SMALL, 5, 60e6)), jitter=0.001)
    (finding,) = detect_late_launch(view)
    assert finding.seconds_lost == pytest.approx(40 * 0.060, rel=0.1)
    assert finding.severity is Severity.CRITICAL


def test_clock_offset_between_hosts_does_not_change_the_finding() -> None:
    view = make_collective_view(NO_TP, delays=Delays(before_compute=of_rank(NO_TP, 5, 60e6)))
    (before,) = detect_late_launch(view)
    for one in view.operations.values():
        one.start_ns[..., 4:] += 10**12
    (after,) = detect_late_launch(view)
    assert (after.ranks, after.seconds_lost) == (before.ranks, before.seconds_lost)


@pytest.mark.parametrize("topology", [Topology(pp=4, tp=2), Topology()], ids=str)
def test_job_without_replicas_yields_nothing(topology: Topology) -> None:
    assert detect_late_launch(make_collective_view(topology)) == []


def test_five_steps_are_too_few_to_name_a_rank() -> None:
    delays = Delays(before_launch=of_rank(SMALL, 5, 80e6, num_steps=5))
    assert detect_late_launch(make_collective_view(SMALL, delays=delays, num_steps=5)) == []
