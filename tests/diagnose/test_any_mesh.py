"""Runs on meshes of any axes and rank order: the same faults, the same verdicts."""

import pytest

from diagnose.model.collectives import all_collectives, group_collectives
from diagnose.model.partners import NOBODY, operation_places, whole_operations
from diagnose.pipeline import diagnose_view
from diagnose.simulate.run import simulate, view
from telemetry.group_names import peer_of_axes, peer_of_mask
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.model.test_collectives import operations
from tests.diagnose.simulate.made_plans import plan
from tests.diagnose.trace.made_columns import made_columns

MESHES = [
    Topology.parse(mesh) for mesh in ("pp=2,dp_shard=4,tp=2", "tp=2,pp=2,dp=4", "pp=2,dp_replicate=2,dp_shard=2,tp=2")
]
ALL = pytest.mark.parametrize("topology", MESHES, ids=str)
RANK = 6
FAULTS = {
    f"slow:rank={RANK},factor=1.3": ("compute-straggler", [RANK]),
    "stage:pp=1,factor=1.5": ("stage-imbalance", []),
    f"gc:rank={RANK},every=2,ms=300": ("late-launch", [RANK]),
    f"data-stall:rank={RANK},seconds=2,share=0.5": ("data-stall", [RANK]),
    "sequences:spread=0.5": ("data-imbalance", []),
}


@ALL
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_on_any_mesh(topology: Topology, fault: str) -> None:
    made = simulate(plan(fault, topology=topology, num_steps=30))
    assert [(one.kind, one.ranks) for one in diagnose_view(view(made)).findings] == [FAULTS[fault]]


@ALL
def test_healthy_run_on_any_mesh_has_no_findings(topology: Topology) -> None:
    assert not diagnose_view(view(simulate(plan(topology=topology, num_steps=30)))).findings


def test_a_slow_link_is_found_among_groups_of_a_mesh() -> None:
    topology = Topology.parse("pp=4,dp_shard=4,tp=2")
    made = simulate(plan("link:host=gpu-005,factor=5", topology=topology, num_microbatches=8, gpus_per_host=2))
    (found,) = diagnose_view(view(made)).findings
    assert (found.kind, found.ranks) == ("slow-link", [10, 11])


def test_description_of_a_rank_has_its_coordinates_on_the_mesh_axes() -> None:
    described = view(simulate(plan(topology=MESHES[2], num_steps=6))).describe(RANK)
    assert described == "rank 6 (host gpu-000, pp0 dp_replicate1 dp_shard1 tp0)"


def test_group_of_a_collective_is_the_recorded_one_or_else_that_of_its_stage() -> None:
    topology = Topology.parse("dp_replicate=2,dp_shard=2")
    shards = peer_of_mask(topology.mask("dp_shard"))
    durations = [[30.0, 12.0, 10.0, 50.0]]
    (recorded,) = group_collectives(Stage.PARAMS_ALL_GATHER, operations(durations, [[shards] * 4]), topology)
    (implied,) = group_collectives(Stage.PARAMS_ALL_GATHER, operations(durations), topology)
    assert recorded.ranks.tolist() == [[0, 1], [2, 3]]
    assert recorded.transfer_ns.tolist() == [[[12, 10]]]
    assert implied.ranks.tolist() == [[0, 1, 2, 3]]


def test_operations_before_and_after_the_mesh_was_known_are_in_the_same_group() -> None:
    topology = Topology.parse("dp_replicate=2,dp_shard=2")
    before, after = peer_of_axes(("dp_shard", "cp"), 2), peer_of_mask(topology.mask("dp_shard"))
    made = operations([[30.0, 12.0, 10.0, 50.0], [3.0, 4.0, 6.0, 5.0]], [[before] * 4, [after] * 4])
    (found,) = group_collectives(Stage.PARAMS_ALL_GATHER, made, topology)
    assert found.transfer_ns.tolist() == [[[12, 10], [3, 5]]]


def test_axes_of_degree_1_create_no_separate_group() -> None:
    """Recorded masks leave them out. Operations with and without a recorded group are in the same group."""
    topology = Topology.parse("dp_replicate=1,dp_shard=4")
    shards = peer_of_mask(topology.mask_of(range(4)))
    made = operations([[3.0, 4.0, 5.0, 6.0], [7.0, 8.0, 9.0, 10.0]], [[shards] * 4, [-1] * 4])
    (found,) = group_collectives(Stage.PARAMS_ALL_GATHER, made, topology)
    assert found.transfer_ns.tolist() == [[[3], [7]]]


def test_groups_of_one_stage_along_different_axes_are_kept_apart() -> None:
    topology = Topology.parse("dp_replicate=2,dp_shard=2")
    shards, replicas = (peer_of_mask(topology.mask(name)) for name in ("dp_shard", "dp_replicate"))
    made = operations([[3.0, 4.0, 5.0, 6.0], [7.0, 8.0, 9.0, 10.0]], [[shards] * 4, [replicas] * 4])
    found = all_collectives({Stage.GRADS_ALL_REDUCE: made}, topology)
    assert {tuple(map(tuple, one.ranks.tolist())): one.transfer_ns.tolist() for one in found} == {
        ((0, 1), (2, 3)): [[[3, 5]]],
        ((0, 2), (1, 3)): [[[7, 8]]],
    }


def test_spans_of_a_collective_are_grouped_along_their_recorded_axes() -> None:
    topology = Topology.parse("pp=2,dp_shard=2,cp=2")
    shards = peer_of_mask(topology.mask("dp_shard"))
    gathers = [(rank, Stage.PARAMS_ALL_GATHER, rank, 9) for rank in range(8)]
    contexts = [(rank, Stage.CP_ALL_GATHER, 10 + rank, 19) for rank in (4, 5)]
    spans = made_columns(*gathers, *contexts, peers=(*[shards] * 8, -1, -1))
    places = operation_places(spans, topology)
    assert NOBODY not in places.place
    (met,) = whole_operations(spans, places)
    assert spans.rank[met].tolist() == [[0, 2], [1, 3], [4, 6], [5, 7], [4, 5]]
