"""transformers: a callback of ``Trainer``, also for trainers that are built on it, such as TRL's.

    on_epoch_begin  get_batch_samples  on_step_begin  ...  on_step_end  (log)  evaluate  on_evaluate  save  on_save
    |---- step n ------------------------------------------|            |- evaluation -| |-checkpoint-| |-- step n+1

The number of a step is ``TrainerState.global_step`` at its beginning, so the first step is 0. ``Trainer`` has no event
for the beginning of an evaluation or a checkpoint. It decides on both before ``on_step_end`` and ``on_epoch_end``.
"""

from time import monotonic_ns
from typing import Any

import transformers
from transformers import TrainerCallback
from transformers.trainer import DEFAULT_CALLBACKS

from telemetry.attach.adapters.loop import LOOP, follow, harmless
from telemetry.stages import Stage

LOSS = "loss"
"""Name of the loss in the logs of a training step. Logs of an evaluation have ``eval_loss``."""


class TransformersCallback(TrainerCallback):  # type: ignore[misc]
    """``Trainer(callbacks=[TransformersCallback()])``. It starts a session if there is none."""

    def __init__(self) -> None:
        self._ended_ns = 0
        """End of the newest step; 0 if an evaluation or a checkpoint followed."""
        self._num_tokens = 0

    @harmless
    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        follow(f"transformers {transformers.__version__}", args.process_index, args.world_size)
        self._ended_ns, self._num_tokens = 0, _num_tokens_of(state)
        if getattr(args, "eval_on_start", False):
            LOOP.begin_stage(Stage.EVALUATION)

    @harmless
    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        LOOP.begin_step(state.global_step)

    @harmless
    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        LOOP.begin_step(state.global_step)

    @harmless
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        LOOP.end_step(state.global_step - 1)
        self._sample_tokens(state)
        LOOP.begin_step(state.global_step)
        self._begin_what_follows(control)

    @harmless
    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._begin_what_follows(control)

    @harmless
    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        LOOP.end_stage(Stage.EVALUATION)
        if control.should_save:
            LOOP.begin_stage(Stage.CHECKPOINT_WRITE)

    @harmless
    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        LOOP.end_stage(Stage.CHECKPOINT_WRITE)

    @harmless
    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        if logs is not None and state.global_step:
            LOOP.sample(logs, step=state.global_step - 1)

    @harmless
    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        LOOP.end_step(state.global_step, completed=False)

    def _begin_what_follows(self, control: Any) -> None:
        """Begin the evaluation or checkpoint that follows. The trainer evaluates before it saves."""
        if control.should_evaluate:
            LOOP.begin_stage(Stage.EVALUATION)
        elif control.should_save:
            LOOP.begin_stage(Stage.CHECKPOINT_WRITE)
        if control.should_evaluate or control.should_save:
            self._ended_ns = 0

    def _sample_tokens(self, state: Any) -> None:
        """Sample the tokens per second of all ranks, if the trainer counts them (``include_num_input_tokens_seen``)."""
        now, num_tokens = monotonic_ns(), _num_tokens_of(state)
        if self._ended_ns and num_tokens > self._num_tokens:
            rate = (num_tokens - self._num_tokens) * 1e9 / (now - self._ended_ns)
            LOOP.sample({"tokens-per-second": rate}, step=state.global_step - 1)
        self._ended_ns, self._num_tokens = now, num_tokens


def _num_tokens_of(state: Any) -> int:
    """The number of tokens so far; 0 in older versions, which do not count them."""
    number: int = getattr(state, "num_input_tokens_seen", 0)
    return number


def install() -> None:
    """Add the callback to every ``Trainer`` that is created from now on."""
    if TransformersCallback not in DEFAULT_CALLBACKS:
        DEFAULT_CALLBACKS.append(TransformersCallback)
