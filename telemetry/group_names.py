"""What the descriptions of process groups say: which axes of the mesh a group lies along, and what it is for.

    mesh_dp_shard                    torch's DeviceMesh:  mesh_ and the name of its axis
    TENSOR_MODEL_PARALLEL_GROUP      Megatron-LM (megatron/core/parallel_state.py)

One table for live groups, flight-recorder dumps and imported profiles.
"""

from collections.abc import Iterable
from typing import Literal

Purpose = Literal["dp", "pp", "tp", "cp", "ep"]
"""What a group's collectives carry: parameters and gradients, activations of a pipeline, of tensor, context or expert
parallelism."""

_DEVICE_MESH = "mesh_"
_MESH_NAMES: dict[str, tuple[str, ...]] = {
    "pp": ("pp",),
    "dp": ("dp",),
    "dp_replicate": ("dp_replicate",),
    "ddp": ("dp_replicate",),
    "dp_shard": ("dp_shard",),
    "cp": ("cp",),
    "tp": ("tp",),
    "ep": ("ep",),
    "dp_cp": ("dp", "cp"),
    "dp_shard_cp": ("dp_shard", "cp"),
    "fsdp": ("dp_shard", "cp"),
    "batch": ("dp_replicate", "dp_shard"),
    "loss": ("dp_replicate", "dp_shard", "cp"),
}
"""Axes of DeviceMesh, those that torchtitan flattens out of several among them."""
_MEGATRON: dict[str, tuple[str, ...]] = {
    "tensor_model_parallel_group": ("tp",),
    "pipeline_model_parallel_group": ("pp",),
    "data_parallel_group": ("dp",),
    "data_parallel_group_gloo": ("dp",),
    "data_parallel_group_with_cp": ("dp", "cp"),
    "data_parallel_group_with_cp_gloo": ("dp", "cp"),
    "context_parallel_group": ("cp",),
    "expert_model_parallel_group": ("ep",),
}
_PURPOSES: dict[str, Purpose] = {"pp": "pp", "tp": "tp", "cp": "cp", "ep": "ep"}
EMBEDDING_GROUPS = ("embedding_group", "position_embedding_group")
"""Megatron's groups of both ends of a pipeline. They lie along no axis."""


def axes_described(description: str) -> tuple[str, ...]:
    """Axes of the mesh that a group's description names; empty where it names none.

    The mesh may lack one of them: torchtitan's ``mesh_fsdp`` exists without context parallelism, too.
    """
    name = description.lower()
    if name.startswith(_DEVICE_MESH):
        return _MESH_NAMES.get(name.removeprefix(_DEVICE_MESH), ())
    return _MEGATRON.get(name, ())


def purpose_of(axes: Iterable[str]) -> Purpose | None:
    """What a group along these axes is for; None where it mixes purposes. Context parallelism with data parallelism is
    data parallelism: parameters are sharded over both."""
    found = {_purpose(name) for name in axes}
    if found == {"dp", "cp"}:
        return "dp"
    return found.pop() if len(found) == 1 else None


def _purpose(name: str) -> Purpose:
    return _PURPOSES.get(name, "dp")
