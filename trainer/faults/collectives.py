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

Collectives that no code of ours issues (DTensor's and ``fully_shard``'s) are reached through module hooks:

    stage pre-hook -> params-all-gather      branches pre-hook -> tp-all-gather .. compute .. hook -> tp-reduce-scatter

These hooks run first, so a rank that is stopped in one has not issued the collective.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from telemetry import Stage
from telemetry.record.collectives.process_group import TracedGroup
from telemetry.record.collectives.stage_names import Operation
from telemetry.topology import AXES
from trainer.faults.act import Healthy, Wrong
from trainer.model.block import ParallelBlock
from trainer.model.transformer import TransformerStage
from trainer.parallel.mesh import Grid


def stand_before_collectives(stages: Sequence[TransformerStage], hook: Healthy) -> None:
    """Call ``hook.before`` ahead of the forward's collectives. To be done after the stages have been parallelised."""

    def before(stage: Stage) -> Any:
        return lambda *_: hook.before(stage)

    for stage in stages:
        stage.register_forward_pre_hook(before(Stage.PARAMS_ALL_GATHER), prepend=True)
        for block in stage.blocks.values():
            assert isinstance(block, ParallelBlock)
            block.branches.register_forward_pre_hook(before(Stage.TP_ALL_GATHER), prepend=True)
            block.branches.register_forward_hook(before(Stage.TP_REDUCE_SCATTER), prepend=True)


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
