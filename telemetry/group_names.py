"""Meaning of process group descriptions: the axes of the mesh that a group spans, and its purpose.

    mesh_dp_shard                    torch's DeviceMesh:  mesh_ and the name of its axis
    TENSOR_MODEL_PARALLEL_GROUP      Megatron-LM (megatron/core/parallel_state.py)

Live groups, flight-recorder dumps and imported profiles use this one table.
"""

import re
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
    "replicate": ("dp_replicate",),
    "ddp": ("dp_replicate",),
    "dp_shard": ("dp_shard",),
    "shard": ("dp_shard",),
    "cp": ("cp",),
    "tp": ("tp",),
    "ep": ("ep",),
    "dp_cp": ("dp", "cp"),
    "dp_shard_cp": ("dp_shard", "cp"),
    "fsdp": ("dp_shard", "cp"),
    "batch": ("dp_replicate", "dp_shard"),
    "loss": ("dp_replicate", "dp_shard", "cp"),
    "loss_mesh": ("dp_replicate", "dp_shard", "cp"),
    "efsdp": ("dp_shard",),
    "dp_shard_mod_ep": ("dp_shard",),
    "dp_shard_in_ep": ("dp_shard",),
    "dp_mod_ep": ("dp",),
    "etp": ("tp",),
}
"""Axes of DeviceMesh, and of those that torchtitan (torchtitan/distributed/parallel_dims.py) and accelerate flatten out
of several among them or keep for experts. torchtitan's ``ep`` takes ranks of dp_shard, cp and tp."""
_MEGATRON: dict[str, tuple[str, ...]] = {
    "tensor_model_parallel_group": ("tp",),
    "pipeline_model_parallel_group": ("pp",),
    "model_parallel_group": ("pp", "tp"),
    "data_parallel_group": ("dp",),
    "data_parallel_group_with_cp": ("dp", "cp"),
    "data_parallel_group_with_cp_ag": ("dp", "cp"),
    "intra_partial_data_parallel_group_with_cp": ("dp", "cp"),
    "context_parallel_group": ("cp",),
    "hybrid_dp_cp_group": ("cp",),
    "tensor_and_data_parallel_group": ("dp", "tp"),
    "tensor_and_data_parallel_group_with_cp": ("dp", "cp", "tp"),
    "tensor_and_context_parallel_group": ("cp", "tp"),
    "expert_model_parallel_group": ("ep",),
    "expert_tensor_parallel_group": ("tp",),
    "expert_tensor_and_model_parallel_group": ("ep", "tp"),
    "expert_tensor_model_pipeline_parallel_group": ("pp", "ep", "tp"),
    "expert_data_parallel_group": ("dp",),
}
"""``intra_distributed_optimizer_instance_group`` is left out: most of a job, along no axes of its mesh."""
_PARTS = frozenset(
    (
        *("mesh_efsdp", "mesh_dp_shard_mod_ep", "mesh_dp_shard_in_ep", "mesh_dp_mod_ep", "mesh_etp"),
        *("intra_partial_data_parallel_group_with_cp", "hybrid_dp_cp_group"),
        *("expert_tensor_parallel_group", "expert_tensor_and_model_parallel_group"),
        *("expert_tensor_model_pipeline_parallel_group", "expert_data_parallel_group"),
    )
)
"""Groups that may hold only some ranks of their axes: experts are laid out over the same ranks in another way."""
_BESIDE_EXPERTS = frozenset(("mesh_efsdp", "mesh_dp_shard_mod_ep", "mesh_dp_mod_ep", "expert_data_parallel_group"))
_HIERARCHICAL = "hierarchical_"
"""Megatron's groups of one level of another group: a part of it."""
_ENDING = re.compile(r"(_gloo)?(_l\d+|_\d+)?$")
"""What Megatron appends: for the backend, the level, or the size."""
_PURPOSES: dict[str, Purpose] = {"pp": "pp", "tp": "tp", "cp": "cp", "ep": "ep"}
_MIXED: dict[frozenset[str], Purpose] = {
    frozenset(("dp", "cp")): "dp",
    frozenset(("dp", "ep")): "dp",
    frozenset(("dp", "cp", "ep")): "dp",
    frozenset(("ep", "tp")): "ep",
}
"""Parameters are sharded over context and expert parallel ranks, too. Tokens are sent to experts that are themselves
sharded."""
EMBEDDING_GROUPS = ("embedding_group", "position_embedding_group")
"""Megatron's groups of both ends of a pipeline. They lie along no axis."""


def axes_described(description: str) -> tuple[str, ...]:
    """Axes of the mesh that a group's description names; empty where it names none.

    The mesh may lack one of them: torchtitan's ``mesh_fsdp`` exists without context parallelism, too. The group may be
    a part of them: see :func:`spans_whole_axes`.
    """
    name = _plain(description)
    if name.startswith(_DEVICE_MESH):
        return _MESH_NAMES.get(name.removeprefix(_DEVICE_MESH), ())
    return _MEGATRON.get(name, ())


def spans_whole_axes(description: str) -> bool:
    """Whether a group of this description holds every rank along its axes, so that its ranks show how these lie."""
    return not description.lower().startswith(_HIERARCHICAL) and _plain(description) not in _PARTS


def lies_beside_experts(description: str) -> bool:
    """Whether a group of this description holds the ranks that have the same experts: with the group of the experts it
    makes up the data parallel ranks."""
    return not description.lower().startswith(_HIERARCHICAL) and _plain(description) in _BESIDE_EXPERTS


def purpose_of(axes: Iterable[str]) -> Purpose | None:
    """What a group along these axes is for; None where it mixes purposes.

    Context or expert parallelism with data parallelism is data parallelism; expert with tensor parallelism is expert
    parallelism.
    """
    found = frozenset(_purpose(name) for name in axes)
    return next(iter(found)) if len(found) == 1 else _MIXED.get(found)


def _plain(description: str) -> str:
    name = description.lower().removeprefix(_HIERARCHICAL)
    return name if name.startswith(_DEVICE_MESH) else _ENDING.sub("", name)


def _purpose(name: str) -> Purpose:
    return _PURPOSES.get(name, "dp")
