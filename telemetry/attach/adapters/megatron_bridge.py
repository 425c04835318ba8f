"""Megatron-Bridge: a callback of ``pretrain`` and ``finetune``.

    on_train_step_start  ...  on_train_step_end     on_eval_start .. on_eval_end    save_checkpoint_and_time()
    |---- step 7 ------------------------------|    |------ evaluation ---------|   |------ checkpoint -------|

The number of a step is ``TrainState.step`` at its beginning, so the first step is 0. There is no event for the
beginning of a checkpoint, so calls of its function are recorded.

Source: ``megatron/bridge/training/callbacks.py`` and ``train.py``, August 2026.
"""

import sys
from typing import Any

import torch.distributed as dist
from megatron.bridge.training.callbacks import Callback

from telemetry.attach.adapters.calls import record_calls
from telemetry.attach.adapters.loop import LOOP, follow, harmless
from telemetry.stages import Stage

TRAIN = "megatron.bridge.training.train"


class MegatronBridgeCallback(Callback):  # type: ignore[misc]
    """``pretrain(config, forward_step, callbacks=[MegatronBridgeCallback()])``. Starts a session if there is none."""

    @harmless
    def on_train_start(self, context: Any) -> None:
        follow("megatron-bridge", dist.get_rank(), dist.get_world_size())
        if (train := sys.modules.get(TRAIN)) is not None:
            record_calls(train, "save_checkpoint_and_time", Stage.CHECKPOINT_WRITE)

    @harmless
    def on_train_step_start(self, context: Any) -> None:
        LOOP.begin_step(context.state.train_state.step)

    @harmless
    def on_train_step_end(self, context: Any) -> None:
        number = context.state.train_state.step
        LOOP.end_step(number)
        LOOP.sample({"grad_norm": context.grad_norm}, number)

    @harmless
    def on_eval_start(self, context: Any) -> None:
        LOOP.begin_stage(Stage.EVALUATION)

    @harmless
    def on_eval_end(self, context: Any) -> None:
        LOOP.end_stage(Stage.EVALUATION)

    on_test_start, on_test_end = on_eval_start, on_eval_end
