"""Faults of one rank in a collective: it skips the collective, or issues it with another size.

DTensor, fully_shard -- all_gather_single, reduce_scatter_tensor_coalesced ... --> TracedGroup --> gloo, NCCL
                                                                            ^
                                                                  intercept_collectives

Effect with gloo (torch 2.13):

skip, next operation of another kind    both sides wait forever under the same number: gloo does not match an
                                        all-gather with a reduce-scatter
skip, next of the same kind, larger     the peers abort (SIGABRT): "Received data size doesn't match expected size"
skip, next of the same kind, smaller    the rank of the fault aborts
shape, half                             the rank of the fault aborts with this message; its peers continue with wrong
                                        results until they detect its end
shape, double                           the peers abort, and the rank of the fault continues

The rank that aborts is often a victim. Only sizes and numbers of operations show the culprit. The launcher ends all
ranks when one dies.

DTensor and ``fully_shard`` issue their collectives themselves. Module hooks run before these collectives:

    stage pre-hook -> params-all-gather      branch pre-hook -> tp-all-gather .. compute .. hook -> tp-reduce-scatter

These hooks run before other hooks, so a rank that stops in one has not issued the collective.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from telemetry import Stage
from telemetry.record.collectives.process_group import TracedGroup
from telemetry.record.collectives.stage_names import Operation
from telemetry.topology import AXES
from trainer.faults.act import Alteration, Healthy
from trainer.model.block import Block
from trainer.model.transformer import TransformerStage
from trainer.parallel.mesh import Grid


def hook_before_collectives(stages: Sequence[TransformerStage], hook: Healthy) -> None:
    """Call ``hook.before`` before the collectives of the forward. Use it after the stages were parallelised."""

    def before(stage: Stage) -> Any:
        return torch.compiler.disable(lambda *_: hook.before(stage))  # type: ignore[no-untyped-call]

    for stage in stages:
        stage.register_forward_pre_hook(before(Stage.PARAMS_ALL_GATHER), prepend=True)
        for block in stage.blocks.values():
            assert isinstance(block, Block)
            for name in block.gathered:
                part = block.get_submodule(name)
                part.register_forward_pre_hook(before(Stage.TP_ALL_GATHER), prepend=True)
                part.register_forward_hook(before(Stage.TP_REDUCE_SCATTER), prepend=True)


Issue = Callable[[str, Operation, tuple[Any, ...], dict[str, Any]], Any]


def intercept_collectives(grid: Grid, hook: Healthy) -> None:
    """Call ``hook.alteration`` for each collective of this rank's groups, before it is recorded. Only traced groups
    support this."""
    for axis in AXES:
        group = grid.mesh.get_group(axis)
        if isinstance(group, TracedGroup):
            group.collective = _altered(hook, group)  # type: ignore[method-assign, assignment]


def _altered(hook: Healthy, group: TracedGroup) -> Issue:
    issue = group.collective

    def collective(name: str, operation: Operation, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        stage = group.place.collective_stage(operation)
        alteration = None if stage is None else hook.alteration(stage)
        if alteration == "skip":
            return completed_work()
        return issue(name, operation, arguments if alteration is None else resized(arguments, alteration), keywords)

    return collective


def completed_work() -> Any:
    """The work of an operation that was not issued. It is complete at once, and the outputs do not change."""
    future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
    future.set_result([])
    return torch._C._distributed_c10d._create_work_from_future(future)  # type: ignore[attr-defined]


def resized(argument: Any, alteration: Alteration) -> Any:
    """Tensors, and sequences of them, with half or twice as many elements. Other values are not changed."""
    if isinstance(argument, torch.Tensor):
        flat = argument.reshape(-1)
        return flat[: max(len(flat) // 2, 1)] if alteration == "half" else torch.cat((flat, flat))
    if isinstance(argument, list | tuple):
        return type(argument)(resized(item, alteration) for item in argument)
    return argument
