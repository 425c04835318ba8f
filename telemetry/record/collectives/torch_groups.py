"""Wraps the process groups that torch makes.

    init_process_group, new_group, DeviceMesh --> _new_process_group_helper    torch makes the whole group: backends,
                                                            |                  eager connections, splits, options
                                                   wrap(plain group, ranks)    the wrapped group replaces it in
                                                            |                  torch's tables of groups

torch makes every backend itself, so the names of backends do not change. The helper is private to torch: without it,
groups are not wrapped. Methods of a process group differ between versions of torch. The module lists which of them are
operations, and which are passed on to the inner group.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _register_process_group, _unregister_process_group
from torch.distributed import distributed_c10d

from telemetry.record.collectives.stage_names import Operation

COLLECTIVES: dict[str, Operation] = {
    "allreduce": Operation.ALL_REDUCE,
    "allreduce_coalesced": Operation.ALL_REDUCE,
    "allgather": Operation.ALL_GATHER,
    "allgather_coalesced": Operation.ALL_GATHER,
    "allgather_into_tensor_coalesced": Operation.ALL_GATHER,
    "_allgather_base": Operation.ALL_GATHER,
    "all_gather_single": Operation.ALL_GATHER,
    "all_gather_single_coalesced": Operation.ALL_GATHER,
    "reduce_scatter": Operation.REDUCE_SCATTER,
    "reduce_scatter_tensor_coalesced": Operation.REDUCE_SCATTER,
    "_reduce_scatter_base": Operation.REDUCE_SCATTER,
    "reduce_scatter_single": Operation.REDUCE_SCATTER,
    "reduce_scatter_single_coalesced": Operation.REDUCE_SCATTER,
    "broadcast": Operation.OTHER,
    "reduce": Operation.OTHER,
    "gather": Operation.OTHER,
    "scatter": Operation.OTHER,
    "alltoall": Operation.ALL_TO_ALL,
    "alltoall_base": Operation.ALL_TO_ALL,
    "all_to_all_single": Operation.ALL_TO_ALL,
    "barrier": Operation.OTHER,
}
"""The kind of each operation."""
PASSED_ON = (
    "abort", "monitored_barrier", "recv_anysource", "set_timeout", "_set_sequence_number_for_group",
    "_get_sequence_number_for_group", "_wait_for_pending_works", "_enable_collectives_timing", "_has_hooks",
    "_register_on_completion_hook",
)  # fmt: skip
"""Methods that go to the inner group as they are."""


def add_methods(wrapper: type[Any], wrapped: type[Any], methods: Mapping[str, Callable[..., Any]]) -> None:
    """Add to ``wrapper`` those of ``methods`` that the type ``wrapped`` of this torch has, too."""
    for name, method in methods.items():
        if hasattr(wrapped, name):
            method.__name__ = name
            setattr(wrapper, name, method)


def to_collective(name: str) -> Callable[..., Any]:
    """A method that calls ``self.collective`` with its name, its kind and the arguments."""

    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return self.collective(name, COLLECTIVES[name], arguments, keywords)

    return method


def to_inner(name: str) -> Callable[..., Any]:
    """A method that calls the same method of ``self.inner``."""

    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return getattr(self.inner, name)(*arguments, **keywords)

    return method


Before = Callable[[dict[str, Any]], Any]
Wrap = Callable[[dist.ProcessGroup, tuple[int, ...], Any], dist.ProcessGroup]
Helper = Callable[..., Any]
BatchFunction = Callable[[list[Any]], list[Any]]
_TABLES = ("pg_map", "pg_names", "pg_group_ranks", "pg_backend_config", "pg_to_tag")


def wrap_new_groups(before: Before, wrap: Wrap) -> None:
    """Replace every group that is made from now on by ``wrap(group, global ranks, noted)``. ``noted`` is the result of
    ``before(keywords of torch's helper)``, which is called before the group is made. Both must not raise.

    Raises:
        AttributeError: this version of torch creates its groups in another function.
    """
    plain: Helper = distributed_c10d._new_process_group_helper
    if getattr(plain, "wraps_groups", False):
        return

    def _new_process_group_helper(*arguments: Any, **keywords: Any) -> Any:
        noted = before(keywords)
        group, store = plain(*arguments, **keywords)
        if type(group) is not dist.ProcessGroup:
            return group, store
        ranks = arguments[2] if len(arguments) > 2 else keywords["global_ranks_in_group"]
        wrapped = wrap(group, tuple(ranks) or tuple(range(group.size())), noted)
        if wrapped is not group:
            _put_in_place(group, wrapped)
        return wrapped, store

    _new_process_group_helper.wraps_groups = True  # type: ignore[attr-defined]
    distributed_c10d._new_process_group_helper = _new_process_group_helper


def _put_in_place(group: dist.ProcessGroup, wrapped: dist.ProcessGroup) -> None:
    """Replace ``group`` by ``wrapped`` in every table that torch keeps of its groups."""
    world = distributed_c10d._world
    for name in _TABLES:
        table = getattr(world, name, {})
        if group in table:
            table[wrapped] = table.pop(group)
    for groups in world.tags_to_pg.values():
        groups[:] = [wrapped if each is group else each for each in groups]
    _unregister_process_group(group.group_name)
    _register_process_group(group.group_name, wrapped)


def share_backends(front: dist.ProcessGroup, group: dist.ProcessGroup) -> None:
    """Register the backends of ``group`` in ``front``. torch's C++ sends some operations directly to backends, not
    through the methods of a Python group."""
    types = dist.Backend.backend_type_map
    own = dist.ProcessGroup.BackendType
    registered = []
    for device in group._device_types:
        backend = group._get_backend(device)
        kind = types.get(_backend_name(backend), own.CUSTOM)
        front._register_backend(device, kind, backend)
        registered.append(kind)
    if registered:
        front._set_default_backend(own.NCCL if own.NCCL in registered else registered[0])
    with suppress(Exception):  # only a group that is bound to a device has one
        if group.bound_device_id is not None:
            front.bound_device_id = group.bound_device_id


def _backend_name(backend: Any) -> str:
    """The name of a backend. In torch's debug mode the backend is wrapped."""
    return str(getattr(backend, "wrapped_pg", backend).name())


def is_on_device(group: dist.ProcessGroup) -> bool:
    """Whether operations of the group that have no tensor (a barrier) run on a CUDA device."""
    cuda = torch.device("cuda")
    return cuda in group._device_types and _backend_name(group._get_backend(cuda)) != dist.Backend.GLOO


def batch_transfers_of(group_type: type[dist.ProcessGroup]) -> None:
    """Let ``batch_isend_irecv`` coalesce the transfers of groups of this type too.

    torch does so for groups of exactly its own type. One by one, the two directions between a pair of ranks would wait
    for each other on NCCL: a pipeline would deadlock.
    """
    plain: BatchFunction = distributed_c10d.batch_isend_irecv
    if getattr(plain, "batches_subclasses", False):
        return

    def batch_isend_irecv(p2p_op_list: list[Any]) -> list[Any]:
        if not p2p_op_list:
            return plain(p2p_op_list)
        group = p2p_op_list[0].group or distributed_c10d._get_default_group()
        device = p2p_op_list[0].tensor.device
        if not isinstance(group, group_type) or not group._get_backend(device).supports_coalescing:
            return plain(p2p_op_list)
        distributed_c10d._check_p2p_op_list(p2p_op_list)
        with distributed_c10d._coalescing_manager(group, device, async_ops=True) as batch:
            for operation in p2p_op_list:
                operation.op(operation.tensor, group=operation.group, tag=operation.tag, **_peer(operation))
        works: list[Any] = batch.works
        return works

    batch_isend_irecv.batches_subclasses = True  # type: ignore[attr-defined]
    distributed_c10d.batch_isend_irecv = batch_isend_irecv
    dist.batch_isend_irecv = batch_isend_irecv


def _peer(operation: Any) -> dict[str, int]:
    return {"group_dst" if operation.op is distributed_c10d.isend else "group_src": operation.group_peer}
