"""Brings a fault to the collectives that no code of ours issues: DTensor's and ``fully_shard``'s.

    stage pre-hook -> params-all-gather      branches pre-hook -> tp-all-gather .. compute .. hook -> tp-reduce-scatter

Module hooks of ours come first, so a rank that is stopped in one has not issued the collective.
"""

from collections.abc import Sequence
from typing import Any

from telemetry import Stage
from trainer.faults.act import Healthy
from trainer.model.block import ParallelBlock
from trainer.model.transformer import TransformerStage


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
