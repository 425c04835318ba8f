"""A rank that issues another collective than its group does: one fewer, or one of other sizes.

DTensor, fully_shard -- all_gather_single, reduce_scatter_tensor_coalesced ... --> TracedGroup --> gloo, NCCL
                                                                            ^
                                                                     stand_in_groups

What gloo (torch 2.13) makes of it:

skip, another kind of operation next    both wait for ever under the same number: gloo keeps all-gathers and
                                        reduce-scatters apart
skip, the same kind next, more bytes    the peers abort (SIGABRT): "Received data size doesn't match expected size"
shape, half                             the rank itself aborts with these words; its peers take the half for the whole
                                        and go on, their results wrong, until they hear of its end
shape, double                           the peers abort, and the rank that was wrong lives on
skip, the same kind next, fewer bytes   the rank itself aborts

Whoever aborts is a victim as often as not: only sizes and numbers of operations tell. The launcher ends all ranks when
one dies.
"""

from collections.abc import Callable
from typing import Any

import torch

from telemetry.record.collectives.process_group import TracedGroup
from telemetry.record.collectives.stage_names import Operation
from telemetry.topology import AXES
from trainer.faults.act import Healthy, Wrong
from trainer.parallel.mesh import Grid

Issue = Callable[[str, Operation, tuple[Any, ...], dict[str, Any]], Any]


def stand_in_groups(grid: Grid, hook: Healthy) -> None:
    """Ask ``hook.instead`` about every collective of this rank's groups, ahead of whoever records it. Where groups are
    not traced there is nobody to ask."""
    for axis in AXES:
        group = grid.mesh.get_group(axis)
        if isinstance(group, TracedGroup):
            group.collective = _asking(hook, group)  # type: ignore[method-assign, assignment]


def _asking(hook: Healthy, group: TracedGroup) -> Issue:
    issue = group.collective

    def collective(name: str, operation: Operation, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        stage = group.place.collective_stage(operation)
        wrong = None if stage is None else hook.instead(stage)
        if wrong == "skip":
            return done_work()
        return issue(name, operation, arguments if wrong is None else resized(arguments, wrong), keywords)

    return collective


def done_work() -> Any:
    """The work of an operation that nobody issued: nothing to wait for, outputs as they were."""
    future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
    future.set_result([])
    return torch._C._distributed_c10d._create_work_from_future(future)  # type: ignore[attr-defined]


def resized(argument: Any, wrong: Wrong) -> Any:
    """Tensors, and sequences of them, each with half or twice its numbers; anything else as it is."""
    if isinstance(argument, torch.Tensor):
        flat = argument.reshape(-1)
        return flat[: max(len(flat) // 2, 1)] if wrong == "half" else torch.cat((flat, flat))
    if isinstance(argument, list | tuple):
        return type(argument)(resized(one, wrong) for one in argument)
    return argument
