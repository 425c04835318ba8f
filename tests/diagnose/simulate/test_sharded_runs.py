"""Simulated runs that shard their parameters, and runs measured with a device clock."""

from dataclasses import replace

import numpy as np
import pytest

from diagnose.model.gathers import gathers_by_layer
from diagnose.model.outage_effect import effect_of
from diagnose.model.outages import find_outages
from diagnose.simulate.plan import LAYERS
from diagnose.simulate.run import Simulation, simulate, view
from diagnose.simulate.store import spans_table
from telemetry.errors import UsageError
from telemetry.group_names import peer_of_mask
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.simulate.made_plans import plan

MESH = Topology.parse("pp=2,dp_replicate=2,dp_shard=2,tp=2")
GATHER, REDUCE = Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER


def sharded(*faults: str, **more: object) -> Simulation:
    return simulate(plan(*faults, topology=MESH, fsdp=True, num_steps=3, **more))


def test_every_layer_is_gathered_in_each_compute_and_reduced_in_each_backward() -> None:
    made = sharded().operations
    assert gathers_by_layer(made)
    assert (made[GATHER].present.sum(axis=1) == 2 * 4 * LAYERS).all()
    assert (made[REDUCE].present.sum(axis=1) == 4 * LAYERS).all()
    assert not gathers_by_layer(simulate(plan()).operations)


def test_the_members_of_a_shard_group_end_each_gather_together_and_name_their_group() -> None:
    made = sharded("slow:rank=3,factor=1.5").operations[GATHER]
    mask = MESH.mask("dp_shard")
    ends = MESH.grouped(made.end_ns, mask)
    assert (ends == ends[..., :1]).all()
    assert set(made.peer.ravel().tolist()) == {peer_of_mask(mask)}
    lasted = made.total_ns().mean(axis=0)
    assert lasted[1] > 2 * lasted[3]  # rank 1 waits for rank 3 at every layer


def test_link_loss_without_a_pipeline_delays_the_first_reduction_of_its_shard_group() -> None:
    mesh = Topology.parse("dp_replicate=2,dp_shard=4")
    made = simulate(plan("flap:rank=5,seconds=4,times=2", topology=mesh, fsdp=True, gpus_per_host=2, num_steps=8))
    healthy = simulate(replace(made.plan, faults=()))
    outages = find_outages(made.fleet.events)
    delayed = np.flatnonzero(made.step_ns - healthy.step_ns > 2e9)
    assert len(delayed) == len(outages) == 2
    for row, outage in zip(delayed.tolist(), outages, strict=True):
        first, usual = (each.operations[REDUCE].duration_ns[row, 0] for each in (made, healthy))
        assert first - usual == pytest.approx([0] * 4 + [outage.up_ns - outage.down_ns] * 4, abs=2)
        assert made.operations[REDUCE].start_ns[row, 0, 5] <= outage.down_ns
        assert outage.up_ns < made.operations[REDUCE].end_ns[row, 0, 5]
        assert effect_of(view(made), outage).steps == (row,)


@pytest.mark.parametrize(("prefetches", "least", "most"), [(True, 0.3, 1.0), (False, 0.0, 0.01)])
def test_gathers_overlap_with_compute_only_when_they_are_prefetched(
    prefetches: bool, least: float, most: float
) -> None:
    """Without noise: a layer is 5 ms of work, its gather 1.5 ms."""
    made = simulate(plan(topology=Topology(dp=4), fsdp=True, noise="none", prefetches=prefetches, num_steps=2))
    forward = made.operations[Stage.FORWARD_COMPUTE].duration_ns[0, 0, 0] / 1e6
    hidden = (40 + LAYERS * 1.5 - forward) / (LAYERS * 1.5)
    assert least <= hidden <= most


def test_issue_time_lies_between_step_start_and_span_start_with_a_device_clock() -> None:
    rows = spans_table(sharded(clock="device")).to_pandas()
    device = rows[~rows.stage.isin([int(Stage.DATA_LOAD), int(Stage.STEP)])]
    begins = rows[rows.stage == int(Stage.STEP)].groupby(["rank", "step"]).start_ns.min()
    began = begins.loc[list(zip(device["rank"], device.step, strict=True))].to_numpy()
    assert (device.issue_ns.to_numpy() >= began).all()
    assert (device.issue_ns.to_numpy() <= device.start_ns.to_numpy()).all()
    assert np.median(device.start_ns - device.issue_ns) > 10e6
    assert not spans_table(sharded()).column("issue_ns").to_numpy().any()


def test_plan_rejects_sharding_without_an_axis_and_a_device_clock_on_the_cpu() -> None:
    with pytest.raises(UsageError, match="no axis to shard"):
        plan(topology=Topology(pp=2), fsdp=True)
    with pytest.raises(UsageError, match="does not work on the CPU"):
        plan(device="cpu", clock="device")
