"""The mesh is learned from the process groups of one rank, with group names of torchtitan and Megatron-LM."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest
import torch

from telemetry.errors import UsageError
from telemetry.group_names import axes_described, purpose_of, spans_whole_axes
from telemetry.record.mesh_learning import MeshLearner, layout_of, topology_of_device_mesh
from telemetry.topology import Topology
from tests.each_case import each_case

TITAN = {"pp": "mesh_pp", "dp_replicate": "mesh_dp_replicate", "dp_shard": "mesh_dp_shard", "cp": "mesh_cp"} | {
    "tp": "mesh_tp"
}
MEGATRON = {
    "dp": "DATA_PARALLEL_GROUP",
    "cp": "CONTEXT_PARALLEL_GROUP",
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
}


class FakeMesh(NamedTuple):
    """The attributes of a DeviceMesh that are read."""

    mesh: torch.Tensor
    mesh_dim_names: tuple[str, ...] | None


def groups_of(topology: Topology, rank: int, names: dict[str, str]) -> Iterator[tuple[str, list[int]]]:
    """The group of a rank along each axis. Groups of one rank are included."""
    for axis, description in names.items():
        (own,) = [group for group in topology.members(topology.mask(axis)).tolist() if rank in group]
        yield description, own


def learned(world_size: int, groups: Sequence[tuple[str, list[int]]]) -> Topology | None:
    learner = MeshLearner(world_size)
    for description, ranks in groups:
        learner.add(description, ranks)
    return learner.topology


@each_case(
    ("mesh", "names"),
    [
        ("pp=2,dp_shard=2,tp=2", TITAN),
        ("pp=2,dp_replicate=2,dp_shard=4,cp=2,tp=2", TITAN),
        ("dp=2,cp=2,tp=2", MEGATRON),
        ("pp=2,dp=2,cp=2,tp=2", MEGATRON),
        ("pp=4,dp=2", MEGATRON),
        ("dp=2,pp=2,tp=2", MEGATRON),
    ],
)
def test_every_rank_learns_the_same_mesh_with_the_axis_order_of_the_job(mesh: str, names: dict[str, str]) -> None:
    topology = Topology.parse(mesh)
    for rank in range(topology.world_size):
        assert learned(topology.world_size, [*groups_of(topology, rank, names)]) == topology


def test_fsdp_group_is_split_into_the_dp_shard_and_cp_axes() -> None:
    groups = [("mesh_pp", [0, 8]), ("mesh_cp", [0, 2]), ("mesh_fsdp", [0, 2, 4, 6]), ("mesh_tp", [0, 1])]
    assert learned(16, groups) == Topology.parse("pp=2,dp_shard=2,cp=2,tp=2")


def test_learner_returns_the_mesh_again_when_it_becomes_finer() -> None:
    learner = MeshLearner(8)
    assert learner.add("mesh_tp", [4, 5]) is None
    assert learner.add("DATA_PARALLEL_GROUP", [1, 3, 5, 7]) == Topology(dp=4, tp=2)
    assert learner.add("DATA_PARALLEL_GROUP", [1, 3, 5, 7]) is None
    finer = learner.add("EXPERT_MODEL_PARALLEL_GROUP", [5, 7])
    assert finer == Topology.parse("dp=2,ep=2,tp=2")
    assert finer.axes_of(finer.mask_of([1, 3, 5, 7])) == ("dp", "ep")


def test_expert_group_over_tensor_parallel_ranks_adds_no_axis() -> None:
    groups = [("mesh_fsdp", [0, 2, 4, 6]), ("mesh_tp", [0, 1]), ("mesh_efsdp", [0, 4]), ("mesh_ep", [0, 1, 2, 3])]
    assert learned(8, groups) == Topology.parse("dp_shard=4,tp=2")


@pytest.mark.parametrize(
    ("groups", "mesh"),
    [
        ([("mesh_efsdp", [0, 4]), ("mesh_ep", [0, 1, 2, 3])], "dp_shard=2,ep=4"),
        ([("mesh_batch", [0, 2, 4, 6]), ("mesh_cp", [0, 1])], "dp_shard=4,cp=2"),
    ],
)
def test_mesh_is_learned_without_an_fsdp_group_when_it_would_span_the_whole_world(
    groups: list[tuple[str, list[int]]], mesh: str
) -> None:
    assert learned(8, groups) == Topology.parse(mesh)


def test_batch_group_is_split_into_replicate_and_shard_axes_by_a_replicate_group() -> None:
    learner = MeshLearner(8)
    learner.add("mesh_batch", [0, 2, 4, 6])
    assert learner.add("mesh_tp", [0, 1]) == Topology.parse("dp_shard=4,tp=2")
    assert learner.add("mesh_dp_replicate", [0, 4]) == Topology.parse("dp_replicate=2,dp_shard=2,tp=2")


@each_case(
    "groups",
    [
        [],
        [("default_pg", [0, 1, 2, 3, 4, 5, 6, 7])],
        [("mesh_tp", [0, 1]), ("mesh_pp", [0, 4])],
        [("mesh_tp", [0, 1, 5]), ("mesh_dp", [0, 2, 4, 6])],
        [("mesh_tp", [0]), ("mesh_model", [0, 1, 2, 3, 4, 5, 6, 7])],
        [("mesh_tp", [0, 1]), ("mesh_dp", [0, 2, 4, 6, 8, 10])],
        [("mesh_tp", [0, 1]), ("mesh_efsdp", [0, 2, 4, 6])],
        [("EMBEDDING_GROUP", [0, 4]), ("HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L0", [0, 1, 2, 3, 4, 5, 6, 7])],
    ],
)
def test_no_mesh_is_learned_from_incomplete_or_inconsistent_groups(groups: list[tuple[str, list[int]]]) -> None:
    assert learned(8, groups) is None


def test_layouts_are_read_from_ranks_in_any_order() -> None:
    assert layout_of([5, 1, 4, 0]) == ((2, 1), (2, 4))
    assert layout_of([7, 3, 5, 1]) == ((4, 2),)
    assert layout_of([0, 1, 3]) is None
    assert layout_of([3]) is None


def test_topology_is_read_from_a_device_mesh() -> None:
    ranks = torch.arange(16)
    names = ("pp", "dp_shard", "tp")
    topology = topology_of_device_mesh(FakeMesh(ranks.reshape(2, 4, 2), names))
    assert topology == Topology.parse("pp=2,dp_shard=4,tp=2")
    turned = topology_of_device_mesh(FakeMesh(ranks.reshape(2, 4, 2).transpose(0, 2), ("tp", "dp_shard", "pp")))
    assert turned == topology
    assert topology_of_device_mesh(FakeMesh(ranks.reshape(4, 2, 2), ("dp", "pp", "tp"))) == Topology(dp=4, pp=2, tp=2)


@each_case(
    ("mesh", "reason"),
    [
        (FakeMesh(torch.tensor([[0, 1], [3, 2]]), ("dp", "tp")), "not in a regular order"),
        (FakeMesh(torch.tensor([[0, 3], [1, 2]]), ("dp", "tp")), "not in a regular order"),
        (FakeMesh(torch.arange(4).reshape(2, 2), None), "has no names"),
        (FakeMesh(torch.arange(4).reshape(2, 2), ("dp", "model")), "'model' is not a known axis"),
    ],
)
def test_unsupported_device_mesh_is_rejected_with_its_reason(mesh: FakeMesh, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        topology_of_device_mesh(mesh)


@each_case(
    ("description", "axes", "purpose", "whole"),
    [
        ("mesh_dp_shard", ("dp_shard",), "dp", True),
        ("mesh_fsdp", ("dp_shard", "cp"), "dp", True),
        ("mesh_efsdp", ("dp_shard",), "dp", False),
        ("mesh_loss_mesh", ("dp_replicate", "dp_shard", "cp"), "dp", True),
        ("DATA_PARALLEL_GROUP_WITH_CP_GLOO", ("dp", "cp"), "dp", True),
        ("HIERARCHICAL_CONTEXT_PARALLEL_GROUP_L1", ("cp",), "cp", False),
        ("HIERARCHICAL_EXPERT_DATA_PARALLEL_GROUP_GLOO_L0", ("dp",), "dp", False),
        ("HYBRID_DP_CP_GROUP_4", ("cp",), "cp", False),
        ("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", ("ep", "tp"), "ep", False),
        ("TENSOR_AND_DATA_PARALLEL_GROUP", ("dp", "tp"), None, True),
        ("POSITION_EMBEDDING_GROUP", (), None, True),
    ],
)
def test_group_descriptions_are_mapped_to_axes_and_a_purpose(
    description: str, axes: tuple[str, ...], purpose: str | None, whole: bool
) -> None:
    assert axes_described(description) == axes
    assert purpose_of(axes) == purpose
    assert spans_whole_axes(description) == whole
