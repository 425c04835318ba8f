"""The real backends, made as torch makes them, and what torch does for a plain group only."""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed import constants, distributed_c10d

BatchFunction = Callable[[list[Any]], list[Any]]


def make_gloo(options: Any, _: Any) -> Any:
    """A gloo backend from the options that torch hands to the maker of a backend."""
    backend = dist.ProcessGroupGloo(options.store, options.group_rank, options.group_size, timeout=options.timeout)
    backend.options.global_ranks_in_group = options.global_ranks_in_group
    backend.options.group_name = options.group_id
    backend._set_sequence_number_for_group()
    return backend


def make_nccl(options: Any, backend_options: Any) -> Any:
    """An NCCL backend; a sub-group makes a communicator of its own where torch might split its parent's."""
    chosen = backend_options or dist.ProcessGroupNCCL.Options()
    chosen._timeout = _nccl_timeout(options.timeout)
    chosen.global_ranks_in_group = options.global_ranks_in_group
    chosen.group_name = options.group_id
    backend = dist.ProcessGroupNCCL(options.store, options.group_rank, options.group_size, chosen)
    backend._set_sequence_number_for_group()
    return backend


def _nccl_timeout(timeout: Any) -> Any:
    """torch gives a backend that it does not know the general default; NCCL has a default of its own."""
    own = getattr(constants, "default_pg_nccl_timeout", None)
    return own if own is not None and timeout == constants.default_pg_timeout else timeout


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
            for one in p2p_op_list:
                one.op(one.tensor, group=one.group, tag=one.tag, **_peer(one))
        works: list[Any] = batch.works
        return works

    batch_isend_irecv.batches_subclasses = True  # type: ignore[attr-defined]
    distributed_c10d.batch_isend_irecv = batch_isend_irecv
    dist.batch_isend_irecv = batch_isend_irecv


def _peer(one: Any) -> dict[str, int]:
    return {"group_dst" if one.op is distributed_c10d.isend else "group_src": one.group_peer}
