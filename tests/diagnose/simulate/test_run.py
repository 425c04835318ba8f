"""Simulated runs: equal for the same seed, consistent with their dependencies, and changed only where a fault is."""

import numpy as np
import pytest

from diagnose.model.operations import Operations
from diagnose.pipeline import diagnose_view
from diagnose.simulate.run import Simulation, simulate, view
from diagnose.whatif.analysis import replayed
from telemetry.stages import Stage, StageClass
from telemetry.topology import Topology
from tests.diagnose.simulate.made_plans import GRID, plan
from tests.each_case import each_case

COMPUTE = (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE)


def same(one: Operations, other: Operations) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in Operations.__slots__)


def slowest_step_s(simulation: Simulation) -> np.ndarray:
    return simulation.operations[Stage.STEP].duration_ns.max(axis=(1, 2)) / 1e9


def test_the_same_seed_makes_the_same_run() -> None:
    one, again, other = (simulate(plan("gc", "drift", seed=seed)) for seed in (3, 3, 4))
    assert one.truth == again.truth
    assert all(same(one.operations[stage], again.operations[stage]) for stage in Stage if stage in one.operations)
    assert not same(one.operations[Stage.FORWARD_COMPUTE], other.operations[Stage.FORWARD_COMPUTE])


@each_case(
    "topology",
    [Topology(dp=4, pp=4, tp=2), Topology(dp=3), Topology(pp=4, tp=2), Topology(tp=2), Topology(dp=2, pp=8, tp=1)],
)
@each_case("noise", ["none", "heavy"])
def test_step_times_equal_a_replay_of_the_operations(topology: Topology, noise: str) -> None:
    faults = ["link:rank=0,factor=3"] if topology.dp > 1 else []
    made = simulate(plan(*faults, topology=topology, noise=noise))
    run = replayed(made.operations, topology)
    assert run is not None
    again_s = run.assumptions.with_times(run.assumptions.own_s)[0]
    np.testing.assert_allclose(again_s, slowest_step_s(made), atol=1e-6, rtol=0)


def test_step_times_of_an_interleaved_schedule_equal_a_replay() -> None:
    topology = Topology(dp=2, pp=4)
    made = simulate(plan(topology=topology, num_chunks=3))
    run = replayed(made.operations, topology)
    assert run is not None
    again_s = run.assumptions.with_times(run.assumptions.own_s)[0]
    np.testing.assert_allclose(again_s, slowest_step_s(made), atol=1e-6, rtol=0)


def test_no_step_begins_before_all_ranks_have_ended_the_previous_step() -> None:
    made = simulate(plan(noise="heavy", checkpoint_every=3)).operations
    first = np.min([np.where(one.present, one.start_ns, 2**62).min(axis=(1, 2)) for one in made.values()], axis=0)
    del made[Stage.CHECKPOINT_WRITE]  # type: ignore[attr-defined]
    last = np.max([one.end_ns.max(axis=(1, 2)) for one in made.values()], axis=0)
    assert (first[1:] > last[:-1]).all()
    assert (made[Stage.STEP].start_ns.min(axis=(1, 2)) == first).all()


def test_a_tensor_parallel_group_ends_its_computes_together_and_the_slow_rank_waits_least() -> None:
    made = simulate(plan("slow:rank=5,factor=1.5", noise="none")).operations
    for stage in COMPUTE:
        ends = made[stage].end_ns.reshape(12, -1, 8, 2)
        assert (ends[..., 0] == ends[..., 1]).all()
        assert np.array_equal(made[stage].duration_ns[..., 4], made[stage].duration_ns[..., 5])
    collective = made[Stage.TP_ALL_REDUCE].duration_ns
    assert (collective[..., 5] == 4_000_000).all()
    assert (collective[..., 4] >= 24_000_000).all()
    assert collective.shape[1] == made[COMPUTE[0]].present.shape[1] + made[COMPUTE[1]].present.shape[1]


def test_cpu_time_is_recorded_only_for_computes_on_the_cpu() -> None:
    on_cpu, on_gpu = (simulate(plan(device=device)).operations for device in ("cpu", "cuda"))  # type: ignore[arg-type]
    for stage in COMPUTE:
        assert (on_gpu[stage].cpu_ns == -1).all()
        assert (on_cpu[stage].cpu_ns > 0).all()
        assert (on_cpu[stage].cpu_ns < on_cpu[stage].duration_ns).all()
    assert (on_cpu[Stage.FORWARD_SEND].cpu_ns == -1).all()


def compute_time(simulation: Simulation) -> np.ndarray:
    """Processor time of forwards and backwards, [steps, ranks]."""
    return sum(simulation.operations[stage].cpu_ns.sum(axis=1) for stage in COMPUTE)  # type: ignore[return-value]


def self_time(simulation: Simulation) -> np.ndarray:
    """Forwards and backwards without their collectives, [steps, ranks]."""
    work = view(simulation).work
    return np.asarray(sum(work[stage].ns for stage in COMPUTE))


@each_case(
    ("fault", "ranks", "factor"),
    [
        ("slow:rank=5,factor=1.4", [5], 1.4),
        ("slow:host=gpu-001,factor=1.2", range(8, 16), 1.2),
        ("stage:pp=1,factor=1.3", [2, 3, 6, 7, 10, 11, 14, 15], 1.3),
        ("contention:host=gpu-000,factor=2", [], 1.0),
        ("data-stall:rank=3,seconds=1", [], 1.0),
        ("link:rank=3,factor=4", [], 1.0),
        ("drift:ms=50", [], 1.0),
    ],
)
def test_fault_changes_only_the_compute_time_of_its_own_ranks(
    fault: str, ranks: range | list[int], factor: float
) -> None:
    healthy, faulty = simulate(plan(device="cpu")), simulate(plan(fault, device="cpu"))
    ratio = compute_time(faulty) / compute_time(healthy)
    others = np.setdiff1d(np.arange(16), ranks)
    assert (ratio[:, others] == 1.0).all()
    np.testing.assert_allclose(ratio[:, list(ranks)], factor, atol=1e-6)


def shortest(simulation: Simulation, stage: Stage) -> np.ndarray:
    """Transfer time of each data-parallel group, [steps, groups]: the shortest duration. Groups are in pp, tp order."""
    duration = simulation.operations[stage].duration_ns[:, 0]
    return duration.reshape(len(duration), GRID.dp, -1).min(axis=1)


def test_a_slow_link_slows_the_transfers_of_its_groups_for_all_members() -> None:
    healthy, faulty = simulate(plan(noise="none")), simulate(plan("link:rank=5,factor=4", noise="none"))
    for stage in (Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER):
        ratio = shortest(faulty, stage) / shortest(healthy, stage)
        assert (ratio[:, [0, 2, 3]] == 1.0).all()
        np.testing.assert_allclose(ratio[:, 1], 4.0, rtol=1e-6)
    sends = faulty.operations[Stage.FORWARD_SEND].duration_ns[..., [1, 5, 9]].min(axis=(0, 1))
    assert (sends == [1_000_000, 4_000_000, 1_000_000]).all()


def test_fault_with_first_and_last_step_changes_only_those_steps() -> None:
    healthy, faulty = (simulate(plan(*fault)) for fault in ((), ("slow:rank=5,factor=2,first_step=4,last_step=7",)))
    changed = np.flatnonzero(faulty.step_ns != healthy.step_ns)
    assert changed.tolist() == [4, 5, 6, 7]
    assert (faulty.truth[0].first_step, faulty.truth[0].last_step) == (4, 7)


def test_long_sequences_lengthen_forward_and_backward_on_all_pipeline_ranks_alike() -> None:
    healthy, faulty = simulate(plan(noise="none")), simulate(plan("sequences:spread=0.4", noise="none"))
    own = {stage: view(faulty).work[stage].each_ns / view(healthy).work[stage].each_ns for stage in COMPUTE}  # type: ignore[operator]
    np.testing.assert_allclose(own[COMPUTE[0]], own[COMPUTE[1]], rtol=1e-6)
    ratio = own[COMPUTE[0]].reshape(12, 4, 4, 4)
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[..., :1], ratio.shape), rtol=1e-6)
    assert 0.3 < np.log(ratio[..., 0]).std() < 0.5


def test_garbage_collection_lies_within_a_forward_and_lengthens_it_by_its_duration() -> None:
    healthy, faulty = simulate(plan(noise="none")), simulate(plan("gc:rank=6,every=3,ms=100", noise="none"))
    collections, forward = faulty.operations[Stage.GC], faulty.operations[Stage.FORWARD_COMPUTE]
    assert set(np.nonzero(collections.present)[2].tolist()) == {6} == set(faulty.truth[0].ranks)
    for row, number, rank in np.argwhere(collections.present).tolist():
        begin, end = collections.start_ns[row, number, rank], collections.end_ns[row, number, rank]
        inside = (forward.start_ns[row, :, rank] < begin) & (forward.end_ns[row, :, rank] > end)
        assert inside.sum() == 1
        longer = forward.duration_ns[row, inside, rank] - healthy.operations[Stage.FORWARD_COMPUTE].duration_ns[0, 0, 0]
        assert abs(int(longer[0]) - (end - begin)) <= 2


def test_drift_fault_delays_launches_more_and_more_without_changing_compute() -> None:
    made = simulate(plan("drift:ms=300", noise="none", num_steps=60))
    scatter = made.operations[Stage.GRADS_REDUCE_SCATTER].start_ns[:, 0].reshape(60, 4, 2, 2)
    late_ns = (scatter - scatter.min(axis=1, keepdims=True)).max(axis=1).mean(axis=(1, 2))
    assert late_ns[40:].mean() > 3 * late_ns[:20].mean()
    assert len(set(scatter[40:, :, 0, 0].argmax(axis=1).tolist())) > 1
    assert np.ptp(made.operations[Stage.BACKWARD_COMPUTE].duration_ns) <= 2


def test_flap_fault_stalls_the_requested_number_of_steps_for_seconds() -> None:
    made = simulate(plan("flap:host=gpu-001,seconds=4,times=2", num_steps=30))
    assert (made.step_ns > 3e9).sum() == 2
    alone = simulate(plan("flap:rank=1,seconds=4", topology=Topology(pp=4), gpus_per_host=2, num_steps=30))
    assert (alone.step_ns > 3e9).sum() == 3


def test_checkpoint_fault_lengthens_the_background_write_of_its_rank() -> None:
    made = simulate(plan("checkpoint:rank=5,factor=3", noise="none", checkpoint_every=6, num_steps=18)).operations
    write = made[Stage.CHECKPOINT_WRITE]
    assert write.present.any(axis=(1, 2)).nonzero()[0].tolist() == [5, 11, 17]
    assert write.duration_ns[5, 0, [4, 5, 6]].tolist() == [3_000_000_000, 9_000_000_000, 3_000_000_000]
    following = made[Stage.STEP].start_ns[6, 0, 5]
    assert write.end_ns[5, 0, 5] > following
    snapshots = made[Stage.CHECKPOINT_SNAPSHOT].start_ns
    assert (snapshots[11, 0, 5] >= write.end_ns[5, 0, 5]).all()


def test_data_stall_fault_delays_the_requested_share_of_steps_on_its_rank_only() -> None:
    healthy, faulty = (
        simulate(plan(*fault, num_steps=20)) for fault in ((), ("data-stall:rank=3,seconds=2,share=0.3",))
    )
    late = (faulty.operations[Stage.DATA_LOAD].duration_ns - healthy.operations[Stage.DATA_LOAD].duration_ns)[:, 0]
    assert (late[:, np.arange(16) != 3] == 0).all()
    assert (late[:, 3] > 1e9).sum() == (late[:, 3] > 0).sum() == 6
    assert np.array_equal(faulty.step_ns > 2e9, late[:, 3] > 0)


def test_throttle_fault_slows_its_rank_in_waves_or_as_a_ramp() -> None:
    healthy = self_time(simulate(plan(num_steps=20)))
    waves, ramp = (
        self_time(simulate(plan(f"throttle:rank=5,factor=1.5,{shape}", num_steps=20))) / healthy
        for shape in ("shape=waves,period=4", "shape=ramp")
    )
    np.testing.assert_allclose(waves[:, 5], np.tile([1.5, 1.5, 1.0, 1.0], 5), atol=1e-6)
    np.testing.assert_allclose(ramp[:, 5], np.linspace(1.0, 1.5, 20), atol=1e-6)
    np.testing.assert_allclose(np.delete(np.concatenate([waves, ramp]), 5, axis=1), 1.0, atol=1e-6)


def test_loss_returns_to_normal_after_a_loss_spike_fault() -> None:
    healthy, faulty = (simulate(plan(*fault, num_steps=40)).samples for fault in ((), ("loss:step=7,size=3",)))
    above = faulty["loss"].values - healthy["loss"].values
    assert (above[:7] == 0).all()
    assert above[7] == pytest.approx(3.0)
    assert (above[30:] < 0.1).all()
    assert faulty["gradient-norm"].values[7] > 2 * healthy["gradient-norm"].values[7]


def test_loss_stays_nan_from_the_step_of_a_nan_fault() -> None:
    loss = simulate(plan("loss:step=7,how=nan")).samples["loss"]
    assert np.isnan(loss.values).tolist() == [step >= 7 for step in range(12)]


def test_decline_fault_lengthens_the_transfers_of_all_groups_in_every_step() -> None:
    made = simulate(plan("decline:factor=3", noise="none", num_steps=20))
    transfer = shortest(made, Stage.GRADS_REDUCE_SCATTER)
    assert (np.diff(transfer, axis=0) > 0).all()
    np.testing.assert_allclose(transfer[-1] / transfer[0], 3.0, rtol=1e-6)


def test_planned_garbage_collections_run_on_all_ranks_at_the_end_of_each_step() -> None:
    made = simulate(plan(collects_by_plan=True)).operations
    assert made[Stage.GC].present.all()
    assert (made[Stage.GC].start_ns[:, 0] >= made[Stage.BACKWARD_COMPUTE].end_ns.max(axis=1)).all()


def test_each_host_stamps_spans_with_its_own_clock() -> None:
    exact, off = (simulate(plan(clock_offset_ms=ms, clock_drift_ppm=ms * 10)) for ms in (0, 5))
    for stage, one in exact.operations.items():
        by = np.where(one.present, off.operations[stage].start_ns - one.start_ns, 0)
        assert np.abs(by).max() < 6_000_000
        longer = off.operations[stage].duration_ns - one.duration_ns
        assert np.abs(longer).max() <= 1 + 60e-6 * one.duration_ns.max()
    offset = (off.operations[Stage.STEP].start_ns - exact.operations[Stage.STEP].start_ns)[0, 0]
    assert len(set(offset[:8].tolist())) == len(set(offset[8:].tolist())) == 1
    assert offset[0] != offset[8]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_healthy_run_yields_no_finding(seed: int, device: str) -> None:
    report = diagnose_view(view(simulate(plan(device=device, seed=seed, num_steps=40))))  # type: ignore[arg-type]
    assert report.findings == ()


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_diagnosis_names_the_slow_rank_of_a_simulation_without_a_store(device: str) -> None:
    made = simulate(plan("slow:rank=5,factor=1.3", device=device, num_steps=40))  # type: ignore[arg-type]
    found = diagnose_view(view(made)).findings
    assert [(finding.kind.value, tuple(finding.ranks)) for finding in found] == [
        (made.truth[0].kind, made.truth[0].ranks)
    ]


@pytest.mark.parametrize(
    ("topology", "gpus_per_host", "ranks"),
    [(Topology(dp=4, pp=8, tp=4), 8, list(range(24, 32))), (Topology(dp=8, pp=2, tp=4), 4, [])],
    ids=["known host", "unknown end of the link"],
)
def test_slow_rank_does_not_hide_a_slow_link_elsewhere(
    topology: Topology, gpus_per_host: int, ranks: list[int]
) -> None:
    faults = ("link:host=gpu-003,factor=10", "slow:rank=60,factor=1.4")
    made = simulate(plan(*faults, topology=topology, gpus_per_host=gpus_per_host, num_microbatches=8))
    found = diagnose_view(view(made)).findings
    assert sorted((finding.kind.value, finding.ranks) for finding in found) == [
        ("compute-straggler", [60]),
        ("slow-link", ranks),
    ]


def test_simulation_has_exactly_the_expected_communication_stages() -> None:
    made = simulate(plan()).operations
    assert {stage for stage in made if stage.stage_class is StageClass.COMMUNICATION} == {
        *(Stage.FORWARD_SEND, Stage.FORWARD_RECV, Stage.BACKWARD_SEND, Stage.BACKWARD_RECV, Stage.TP_ALL_REDUCE),
        *(Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER, Stage.EMBEDDING_GRADS_ALL_REDUCE),
    }


def test_run_with_unplanned_garbage_collections_is_replayed_completely() -> None:
    made = simulate(plan("gc:every=3"))
    run = replayed(made.operations, made.plan.topology)
    assert run is not None
    assert run.times.num_left_out == 0
