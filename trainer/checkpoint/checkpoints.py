"""The checkpoints of one rank, from the first step to the last."""

import signal
import time
from pathlib import Path

import torch
from torch import Tensor

import telemetry
from telemetry import Stage, span
from trainer.checkpoint.folder import About
from trainer.checkpoint.restore import restore
from trainer.checkpoint.schedule import Schedule, Signals
from trainer.checkpoint.state import TrainingState
from trainer.checkpoint.write import Buffers, CheckpointWriter, plan_writes
from trainer.config import RunOptions, TrainConfig

CHECK_EVERY_STEPS = 16
"""On a GPU the host reads the signals of all ranks every so many steps, and when a checkpoint is due. Reading waits for
the device."""


class Checkpoints:
    """Saves and restores the training of one rank. Does nothing if ``options.checkpoints`` is None.

    Methods are called on the training thread, in the same order on every rank.
    """

    def __init__(self, config: TrainConfig, options: RunOptions, *, rank: int, device: torch.device) -> None:
        self._config = config
        self._options = options
        self._rank = rank
        self._device = device
        self._world_size = config.parallel.topology.world_size
        self._signals = Signals()
        self._asked_to_end = False
        self._step_s = 0.0
        self._step_began_s = 0.0
        self._saver: _Saver | None = None

    def restore(self, state: TrainingState) -> int:
        """Load the newest complete checkpoint and prepare to write others. The number of the first step to do.

        Raises:
            UnreadableError: there are checkpoints, and none can be read.
            UsageError: they belong to another training.
        """
        root = self._options.checkpoints
        if root is None:
            return 0
        restored = restore(root, state, self._config)
        done = restored.about.step if restored else 0
        if restored:
            telemetry.mark(
                "resumed", f"from the checkpoint after step {done - 1}; this rank read {restored.read_bytes} bytes"
            )
        signal.signal(signal.SIGTERM, self._note_ending)
        self._saver = _Saver(self._config, self._options, root, state, done=done)
        self._step_began_s = time.monotonic()
        return done

    def signals(self) -> Signals:
        """What this rank adds to the sum over all ranks in the step that begins."""
        saver = self._saver
        if saver is None:
            return Signals()
        return Signals(
            busy=float(saver.writer.busy),
            failed=float(saver.writer.failure is not None),
            ended=float(self._asked_to_end),
            cost_s=saver.cost_s,
            step_s=self._step_s,
        )

    def after(self, step: int, totals: Tensor) -> bool:
        """Take a snapshot if one is due. ``totals``: the sum of all ranks' signals. Whether training is to end."""
        saver, done = self._saver, step + 1
        if saver is None:
            return False
        now_s = time.monotonic()
        self._step_s, self._step_began_s = now_s - self._step_began_s, now_s
        on_gpu = self._device.type == "cuda"
        if on_gpu and done % CHECK_EVERY_STEPS and not saver.schedule.due(done):
            return False
        decision = saver.schedule.decide(done, Signals(*totals.tolist()))
        if decision.abandon:
            saver.writer.abandon()
        if decision.snapshot:
            saver.save(done)
        return decision.end

    def finish(self) -> None:
        """Wait until the last checkpoint is written."""
        if self._saver is not None:
            self._saver.writer.finish()

    def _note_ending(self, *_: object) -> None:
        self._asked_to_end = True


class _Saver:
    """What a rank needs to save: buffers, the plan of files, the thread that writes."""

    def __init__(
        self, config: TrainConfig, options: RunOptions, root: Path, state: TrainingState, *, done: int
    ) -> None:
        self._config = config
        self._options = options
        self._state = state
        self._tensors = state.tensors()
        self._world_size = config.parallel.topology.world_size
        self._buffers = Buffers(self._tensors)
        plan = plan_writes(self._tensors, rank=state.rank, world_size=self._world_size)
        self.writer = CheckpointWriter(root, plan, rank=state.rank, keep=config.checkpoint.keep)
        self.schedule = Schedule(config.checkpoint, done=done, num_steps=config.num_steps, world_size=self._world_size)
        self.cost_s = 0.0

    def save(self, done: int) -> None:
        """Copy the state into the buffers, and have them written."""
        self.writer.finish()
        began_s = time.monotonic()
        with span(Stage.CHECKPOINT_SNAPSHOT):
            self._buffers.copy_from(self._tensors | self._state.random())
        self.cost_s = time.monotonic() - began_s
        about = About(
            step=done,
            run_id=self._options.run_id or "",
            attempt=self._options.attempt or 0,
            world_size=self._world_size,
            tokens_per_step=self._config.tokens_per_step,
            seed=self._config.seed,
        )
        self.writer.begin(self._buffers, about)
