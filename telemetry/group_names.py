"""Process groups: the meaning of their descriptions, and how spans identify them.

    mesh_dp_shard                    torch's DeviceMesh:  mesh_ and the name of its axis
    TENSOR_MODEL_PARALLEL_GROUP      Megatron-LM (megatron/core/parallel_state.py)

Live groups, flight-recorder dumps and imported profiles use this one table of descriptions.

    peer of a stored span    0 and above    the global rank on the other side of a send or receive
                             -1             neither a rank nor a group is known
                             -3 and below   the group of a collective: -2 - code

    code    below 128: bit mask of the axes of the mesh (``telemetry/topology.py``)
            otherwise   bit 28   27 ........ 7    6 ......... 0
                             1   ranks of it      axes, in the order of MESH_AXES

A mask is valid in one mesh only. While the mesh is not known, a group is identified by the axes in its description and
its size, which are valid in every mesh. Such a code becomes a mask when the span is read, once the mesh is known. Older
versions read it as a group that the mesh does not have.
"""

import re
from collections.abc import Iterable
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from telemetry.topology import MAX_RANKS, MESH_AXES, Topology

Purpose = Literal["dp", "pp", "tp", "cp", "ep"]
"""The purpose of a group: its collectives transfer parameters and gradients (dp), or activations of pipeline, tensor,
context or expert parallelism."""

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
"""Dimension of a DeviceMesh -> axes. This includes the dimensions that torchtitan
(torchtitan/distributed/parallel_dims.py) and accelerate flatten from several axes, or use for experts. torchtitan's
``ep`` takes ranks of dp_shard, cp and tp."""
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
"""Megatron's group -> axes. ``intra_distributed_optimizer_instance_group`` is left out: it contains most ranks of a
job, and lies along no axes of the mesh."""
_PARTS = frozenset(
    (
        *("mesh_efsdp", "mesh_dp_shard_mod_ep", "mesh_dp_shard_in_ep", "mesh_dp_mod_ep", "mesh_etp"),
        *("intra_partial_data_parallel_group_with_cp", "hybrid_dp_cp_group"),
        *("expert_tensor_parallel_group", "expert_tensor_and_model_parallel_group"),
        *("expert_tensor_model_pipeline_parallel_group", "expert_data_parallel_group"),
    )
)
"""Groups that may contain only some ranks of their axes, because experts divide the same ranks differently."""
_BESIDE_EXPERTS = frozenset(("mesh_efsdp", "mesh_dp_shard_mod_ep", "mesh_dp_mod_ep", "expert_data_parallel_group"))
_HIERARCHICAL = "hierarchical_"
"""Prefix of Megatron's groups for one level of another group. Such a group is a part of the other group."""
_ENDING = re.compile(r"(_gloo)?(_l\d+|_\d+)?$")
"""Endings that Megatron appends for the backend, the level, or the size."""
_PURPOSES: dict[str, Purpose] = {"pp": "pp", "tp": "tp", "cp": "cp", "ep": "ep"}
_MIXED: dict[frozenset[str], Purpose] = {
    frozenset(("dp", "cp")): "dp",
    frozenset(("dp", "ep")): "dp",
    frozenset(("dp", "cp", "ep")): "dp",
    frozenset(("ep", "tp")): "ep",
}
"""Axes -> purpose, for groups along several axes. Parameters are also sharded over context and expert parallel ranks.
Tokens are sent to experts that are themselves sharded."""
EMBEDDING_GROUPS = ("embedding_group", "position_embedding_group")
"""Megatron's groups of both ends of a pipeline. They lie along no axis."""

NO_PEER, GROUP_BASE = -1, -2
"""Values in ``peer`` of spans: ``NO_PEER`` if nothing is known, ``GROUP_BASE`` minus its code for a group."""
Peers = npt.NDArray[np.signedinteger[Any]]
_NAMED = 1 << 28
_SIZE_SHIFT = len(MESH_AXES)


def axes_described(description: str) -> tuple[str, ...]:
    """Axes of the mesh that a group's description names; empty if it names none.

    The mesh may lack one of the axes: torchtitan's ``mesh_fsdp`` exists without context parallelism, too. The group may
    contain only some ranks along them: see :func:`spans_whole_axes`.
    """
    name = _plain(description)
    if name.startswith(_DEVICE_MESH):
        return _MESH_NAMES.get(name.removeprefix(_DEVICE_MESH), ())
    return _MEGATRON.get(name, ())


def spans_whole_axes(description: str) -> bool:
    """Whether a group of this description contains every rank along its axes, so that its ranks show their strides."""
    return not description.lower().startswith(_HIERARCHICAL) and _plain(description) not in _PARTS


def lies_beside_experts(description: str) -> bool:
    """Whether a group of this description contains the ranks with the same experts. Together with the group of the
    experts it forms the data parallel ranks."""
    return not description.lower().startswith(_HIERARCHICAL) and _plain(description) in _BESIDE_EXPERTS


def purpose_of(axes: Iterable[str]) -> Purpose | None:
    """The purpose of a group along these axes; None if the group mixes other purposes.

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


def peer_of_mask(mask: int) -> int:
    """The value of ``peer`` for a group along the axes in ``mask``; ``NO_PEER`` if ``mask`` is 0."""
    return GROUP_BASE - mask if mask else NO_PEER


def mask_of_peer(peer: int) -> int:
    """The inverse of :func:`peer_of_mask`; 0 if ``peer`` is not a group."""
    return GROUP_BASE - peer if peer < GROUP_BASE else 0


def masks_of_peers(peers: Peers) -> npt.NDArray[np.int64]:
    """:func:`mask_of_peer` of an array, shape as given."""
    return np.where(peers < GROUP_BASE, GROUP_BASE - peers.astype(np.int64), 0)


def peer_of_axes(names: Iterable[str], size: int) -> int:
    """The value of ``peer`` for a group of ``size`` ranks along these axes; ``NO_PEER`` without names."""
    bits = sum(1 << MESH_AXES.index(name) for name in set(names))
    return GROUP_BASE - (_NAMED | size << _SIZE_SHIFT | bits) if bits and 1 < size <= MAX_RANKS else NO_PEER


def axes_of_peer(peer: int) -> tuple[str, ...]:
    """The axes that ``peer`` names, in the order of ``MESH_AXES``; empty if it names none."""
    code = GROUP_BASE - peer
    return tuple(name for at, name in enumerate(MESH_AXES) if code >> at & 1) if code >= _NAMED else ()


def resolved_peers(peers: Peers, topology: Topology) -> Peers:
    """``peers`` with a mask in place of names, shape as given. A group that ``topology`` lacks becomes ``NO_PEER``."""
    named = peers <= GROUP_BASE - _NAMED
    if not named.any():
        return peers
    codes, place = np.unique(peers[named], return_inverse=True)
    answer = peers.copy()
    answer[named] = np.array([_resolved_peer(int(peer), topology) for peer in codes], dtype=peers.dtype)[place]
    return answer


def _resolved_peer(peer: int, topology: Topology) -> int:
    """``peer`` with a mask; ``NO_PEER`` if the size does not fit: the group may contain ranks along other axes, too."""
    mask = topology.wide_mask(*axes_of_peer(peer))
    degrees = dict(topology.mesh)
    size = (GROUP_BASE - peer - _NAMED) >> _SIZE_SHIFT
    return peer_of_mask(mask) if size == prod(degrees[name] for name in topology.axes_of(mask)) else NO_PEER
