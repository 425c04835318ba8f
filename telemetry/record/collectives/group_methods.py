"""Methods of a process group, over the versions of torch: which are operations, and which go on to the inner group."""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

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
"""What the operations do."""
PASSED_ON = (
    "abort", "monitored_barrier", "recv_anysource", "set_timeout", "_set_sequence_number_for_group",
    "_get_sequence_number_for_group", "_wait_for_pending_works", "_enable_collectives_timing", "_has_hooks",
    "_register_on_completion_hook",
)  # fmt: skip
"""Methods that go to the inner group as they are."""


def add_methods(group_type: type[dist.ProcessGroup]) -> None:
    """Give a type of traced group the methods that this torch has. Operations go to its method ``collective``, with
    their name, their kind and the arguments; the others to the same method of its ``inner`` group."""
    for name, operation in COLLECTIVES.items():
        if hasattr(dist.ProcessGroup, name):
            setattr(group_type, name, _operation(name, operation))
    for name in PASSED_ON:
        if hasattr(dist.ProcessGroup, name):
            setattr(group_type, name, _passed_on(name))


def _operation(name: str, operation: Operation) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return self.collective(name, operation, arguments, keywords)

    method.__name__ = name
    return method


def _passed_on(name: str) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return getattr(self.inner, name)(*arguments, **keywords)

    method.__name__ = name
    return method
