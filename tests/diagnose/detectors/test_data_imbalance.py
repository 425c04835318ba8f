from dataclasses import replace

import numpy as np
import pytest

from diagnose.detectors.data_imbalance import detect_data_imbalance
from diagnose.findings import Kind, Severity
from diagnose.model.view import RunView, Work
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.made_collectives import as_operations
from tests.diagnose.made_view import make_view
from tests.diagnose.over_seeds import over_seeds
from tests.each_case import each_case

GRIDS = [Topology(dp=2, pp=2, tp=2), Topology(dp=8, pp=4, tp=2), Topology(dp=16), Topology(dp=4, pp=2)]


def microbatch_view(
    topology: Topology,
    *,
    lengths: float = 0.0,
    alone: bool = False,
    num_microbatches: int = 6,
    num_chunks: int = 1,
    jitter: float = 0.02,
    slow: dict[int, float] | None = None,
    heavy_stage: dict[int, float] | None = None,
    num_steps: int = 40,
    seed: int = 0,
) -> RunView:
    """``lengths`` is the log-normal spread of microbatches. All ranks of a replica share it; with ``alone``, none do.

    Backward runs the microbatches in reverse order. Only their numbers match forward and backward.
    """
    random = np.random.default_rng(seed)
    view = make_view(
        topology, num_steps=num_steps, jitter=0.01, slow=slow, slow_from_row=12, heavy_stage=heavy_stage, seed=seed
    )
    inside = topology.pp * topology.tp
    shape = (num_steps, 1, num_microbatches, topology.dp, inside if alone else 1)
    length = np.broadcast_to(
        np.exp(random.normal(0.0, lengths, shape)), (num_steps, num_chunks, num_microbatches, topology.dp, inside)
    ).reshape(num_steps, num_chunks * num_microbatches, topology.world_size)
    work, operations = {}, {}
    for stage, one in view.work.items():
        each = one.ns[:, None] / length.shape[1] * length * np.exp(random.normal(0.0, jitter, length.shape))
        number = np.broadcast_to(np.arange(length.shape[1])[None, :, None], length.shape)
        if stage is Stage.BACKWARD_COMPUTE:
            each, number = each[:, ::-1], number[:, ::-1]
        operations[stage] = replace(
            as_operations(each, np.zeros_like(each)),
            microbatch=(number % num_microbatches).astype(np.int16),
            chunk=(number // num_microbatches).astype(np.int16),
        )
        work[stage] = Work(ns=each.sum(axis=1), basis=one.basis, each_ns=each)
    return replace(view, work=work, operations=operations)


@each_case("topology", GRIDS)
@over_seeds(range(10))
def test_a_healthy_run_yields_nothing(topology: Topology, seed: int) -> None:
    assert detect_data_imbalance(microbatch_view(topology, seed=seed)) == []


@each_case("topology", GRIDS)
@each_case("jitter", [0.3, 1.0])
@over_seeds(range(10))
def test_heavy_jitter_yields_nothing(topology: Topology, jitter: float, seed: int) -> None:
    assert detect_data_imbalance(microbatch_view(topology, jitter=jitter, seed=seed)) == []


@each_case("topology", GRIDS)
@over_seeds(range(5))
def test_slow_first_microbatch_of_the_warm_up_step_yields_nothing(topology: Topology, seed: int) -> None:
    view = microbatch_view(topology, num_microbatches=2, jitter=0.1, num_steps=20, seed=seed)
    for work in view.work.values():
        assert work.each_ns is not None
        first = view.operations[Stage.FORWARD_COMPUTE].microbatch[0, :, 0] == 0
        work.each_ns[0, first if work is view.work[Stage.FORWARD_COMPUTE] else ~first] *= 8.0
    assert detect_data_imbalance(view) == []


@each_case("topology", GRIDS)
@each_case("lengths", [0.15, 0.4])
@each_case("num_chunks", [1, 2])
@over_seeds(range(5))
def test_unequal_sequence_lengths_are_reported_without_a_suspect(
    topology: Topology, lengths: float, num_chunks: int, seed: int
) -> None:
    view = microbatch_view(topology, lengths=lengths, num_chunks=num_chunks, num_microbatches=8, seed=seed)
    (finding,) = detect_data_imbalance(view)
    assert finding.kind is Kind.DATA_IMBALANCE
    assert finding.suspects == ()
    assert finding.evidence["variation_over_microbatches"] == pytest.approx(lengths, rel=0.2)
    assert finding.evidence["correlation"] > 0.95


def test_the_longest_microbatch_is_named_with_its_step_and_replica() -> None:
    view = microbatch_view(Topology(dp=2, pp=2, tp=2), lengths=0.3, num_microbatches=6)
    for stage, at in ((Stage.FORWARD_COMPUTE, 3), (Stage.BACKWARD_COMPUTE, 6 - 1 - 3)):
        each_ns = view.work[stage].each_ns
        assert each_ns is not None
        each_ns[20, at, 4:] *= 8.0
    (finding,) = detect_data_imbalance(view)
    assert finding.evidence["steps"] == [view.steps[20]]
    assert "microbatch 3 of dp1" in str(finding.evidence["longest"])


@each_case("topology", GRIDS)
@over_seeds(range(5))
def test_slow_rank_is_not_reported_as_data_imbalance(topology: Topology, seed: int) -> None:
    assert detect_data_imbalance(microbatch_view(topology, slow={1: 2.0}, seed=seed)) == []


@over_seeds(range(5))
def test_heavy_last_pipeline_stage_is_not_reported_as_data_imbalance(seed: int) -> None:
    assert detect_data_imbalance(microbatch_view(GRIDS[1], heavy_stage={3: 2.0}, seed=seed)) == []


@over_seeds(range(5))
def test_replica_slow_for_whole_steps_is_not_reported_as_data_imbalance(seed: int) -> None:
    view = microbatch_view(GRIDS[1], seed=seed)
    slow = np.exp(np.random.default_rng(seed).normal(0.0, 0.4, (40, 1, 8))).repeat(8, axis=2)
    work = {
        stage: replace(one, ns=one.ns * slow[:, 0], each_ns=one.each_ns * slow)
        for stage, one in view.work.items()
        if one.each_ns is not None
    }
    assert detect_data_imbalance(replace(view, work=work)) == []


@over_seeds(range(5))
def test_small_length_differences_are_not_reported(seed: int) -> None:
    assert detect_data_imbalance(microbatch_view(GRIDS[2], lengths=0.035, jitter=0.002, seed=seed)) == []


def test_imbalance_of_negligible_cost_is_not_reported() -> None:
    view = microbatch_view(GRIDS[2], lengths=0.2)
    assert detect_data_imbalance(replace(view, step_ns=view.step_ns * 50)) == []


@over_seeds(range(5))
def test_long_microbatches_not_shared_by_the_replica_are_not_reported(seed: int) -> None:
    assert detect_data_imbalance(microbatch_view(GRIDS[1], lengths=0.3, alone=True, seed=seed)) == []


def test_data_imbalance_is_reported_beside_a_slow_rank() -> None:
    (finding,) = detect_data_imbalance(microbatch_view(GRIDS[1], lengths=0.3, slow={9: 2.0}))
    assert finding.suspects == ()


def test_lost_time_is_the_excess_of_the_slowest_replica_over_the_mean() -> None:
    view = microbatch_view(Topology(dp=8), lengths=0.4, jitter=0.0)
    (finding,) = detect_data_imbalance(view)
    total = np.sum([work.ns for work in view.work.values()], axis=0)
    expected = (total.max(axis=1) - total.mean(axis=1)).sum() / 1e9
    assert finding.seconds_lost == pytest.approx(expected, rel=0.1)
    assert finding.severity is Severity.WARNING


def test_unequal_lengths_in_a_single_replica_lose_less_than_30_percent() -> None:
    view = microbatch_view(Topology(pp=4, tp=2), lengths=0.4)
    (finding,) = detect_data_imbalance(view)
    assert 0 < finding.share_lost < 0.3


def test_operations_without_microbatch_numbers_yield_nothing() -> None:
    view = microbatch_view(GRIDS[0], lengths=0.4)
    for one in view.operations.values():
        one.microbatch[:] = -1
    assert detect_data_imbalance(view) == []


def test_view_without_times_of_single_operations_yields_nothing() -> None:
    view = microbatch_view(GRIDS[0], lengths=0.4)
    work = {stage: replace(one, each_ns=None) for stage, one in view.work.items()}
    assert detect_data_imbalance(replace(view, work=work)) == []


def test_one_microbatch_per_step_yields_nothing() -> None:
    assert detect_data_imbalance(microbatch_view(GRIDS[0], lengths=0.4, num_microbatches=1)) == []


def test_missing_values_of_a_rank_and_a_step_do_not_hide_the_imbalance() -> None:
    view = microbatch_view(GRIDS[1], lengths=0.4)
    for stage, one in view.operations.items():
        one.duration_ns[:, :, 3] = -1
        view.work[stage].each_ns[:, :, 3] = np.nan
        one.duration_ns[7, 2:] = -1
        view.work[stage].each_ns[7, 2:] = np.nan
    assert len(detect_data_imbalance(view)) == 1


def test_unequal_microbatches_of_twelve_thousand_ranks_are_one_finding() -> None:
    view = microbatch_view(Topology(dp=192, pp=8, tp=8), lengths=0.3, num_microbatches=8, num_steps=20)
    assert len(detect_data_imbalance(view)) == 1
