"""The checkpoints of one rank, from the first step to the last."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

import telemetry
from telemetry import Stage, span
from telemetry.printable import write_lines
from trainer.checkpoint.claim import facts_of
from trainer.checkpoint.ending import EndingRequest
from trainer.checkpoint.finite import NUM_FIGURES, NotFiniteError, check_finite
from trainer.checkpoint.folder import About, remove_old
from trainer.checkpoint.restore import Restored, restore
from trainer.checkpoint.schedule import Schedule, Signals
from trainer.checkpoint.space import why_too_little_space
from trainer.checkpoint.state import TrainingState
from trainer.checkpoint.write import Buffers, CheckpointWriter, plan_writes
from trainer.config import TrainConfig
from trainer.optim.sharded import add_over_ranks
from trainer.replicas.replicator import Replicator
from trainer.replicas.restore import restore_replica
from trainer.run_options import RunOptions


class Checkpoints:
    """Saves and restores the training of one rank. Does nothing if ``options.checkpoints`` is None.

    Methods are called on the training thread, in the same order on every rank. ``report``: see ``CheckpointWriter``.
    ``warn`` gets a warning, on rank 0, if checkpoints will not fit on the disk.
    """

    def __init__(
        self,
        config: TrainConfig,
        options: RunOptions,
        report: Callable[[str], None] = lambda _: None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._config = config
        self._options = options
        self._report = report
        self._warn = warn
        self._saver: _Saver | None = None

    def restore(self, state: TrainingState) -> int:
        """Load the newest complete checkpoint and prepare to write others. Returns the number of the first step to do.

        Raises:
            UnreadableError: there are checkpoints, and none can be read.
            UsageError: the checkpoints belong to another training.
        """
        root = self._options.checkpoints
        if root is None:
            return 0
        restored = self._from_memory(root, state) or restore(root, state, self._config)
        done = restored.about.step if restored else 0
        if restored:
            source = "the checkpoint" if restored.stored_step is None else "the memory of the nodes"
            telemetry.mark(
                "resumed", f"from {source} after step {done - 1}; this rank read {restored.read_bytes} bytes"
            )
        stored = done if restored is None or restored.stored_step is None else restored.stored_step
        self._saver = _Saver(self._config, self._options, root, state, self._report, done=done, stored=stored)
        if problem := self._saver.why_too_little_space(root):
            write_lines(problem)
            telemetry.mark("checkpoint-space", problem)
            self._warn(problem)
        return done

    def _from_memory(self, root: Path, state: TrainingState) -> Restored | None:
        """Load the state from the memory of the nodes. None if the job keeps no replicas, or they cannot be used."""
        places, run_id = self._options.replicas, self._options.run_id
        return None if places is None or run_id is None else restore_replica(root, run_id, places, state, self._config)

    def signals(self) -> Signals | None:
        """This rank's part of the sum over all ranks, or None if no checkpoints are written."""
        return None if self._saver is None else self._saver.signals()

    def after(self, step: int, totals: Tensor) -> bool:
        """Take a snapshot if one is due. Returns whether training is to end.

        Args:
            totals: sums over all ranks: the squared gradient norm, the loss, and the signals.

        Raises:
            NotFiniteError: the norm or the loss is not finite in this step, or in a step since the last decision. No
                snapshot contains such a step. Earlier checkpoints are completed before the error is raised, so the
                call is collective then.
        """
        return self._saver is not None and self._saver.after(step + 1, totals)

    def finish(self) -> None:
        """Wait until the last checkpoint is complete or abandoned. A collective call."""
        if self._saver is not None:
            self._saver.finish()


class _Saver:
    """Saves the state of one rank: holds the buffers, the plan of files and the writer thread, and measures times."""

    def __init__(
        self,
        config: TrainConfig,
        options: RunOptions,
        root: Path,
        state: TrainingState,
        report: Callable[[str], None],
        *,
        done: int,
        stored: int,
    ) -> None:
        """``done``: completed steps at the start of this attempt. ``stored``: steps in the newest stored checkpoint."""
        self._config = config
        self._options = options
        self._state = state
        self._tensors = state.tensors()
        self._world_size = config.parallel.topology.world_size
        self._buffers = Buffers(self._tensors)
        if state.rank == 0:
            with suppress(OSError):
                # An attempt that was killed right after a checkpoint has not removed what it replaced.
                # No rank writes before the plan, which needs all ranks.
                remove_old(root, newest=stored, keep=config.checkpoint.keep, writer_id=os.urandom(4).hex())
        plan = plan_writes(self._tensors, rank=state.rank, world_size=self._world_size)
        self._replicator = (
            Replicator(options.replicas, plan, self._tensors, rank=state.rank) if options.replicas else None
        )
        self._size_bytes = plan.size_bytes
        self._writer = CheckpointWriter(root, plan, rank=state.rank, keep=config.checkpoint.keep, report=report)
        self._schedule = Schedule(
            config.checkpoint, done=stored, num_steps=config.num_steps, world_size=self._world_size
        )
        self._ending = EndingRequest()
        self._step_s = 0.0
        self._read_s, self._read_done = time.monotonic(), done
        self._next_read = done
        self._unread: list[Tensor] = []
        """Sums over all ranks of the steps since the last decision."""

    def why_too_little_space(self, root: Path) -> str:
        """On rank 0, a warning if the checkpoints will not fit on the disk. Empty if they fit, and on other ranks."""
        return why_too_little_space(root, self._size_bytes, self._config.checkpoint.keep) if self._size_bytes else ""

    def signals(self) -> Signals:
        """This rank's signals as of now."""
        return Signals(
            busy=float(self._writer.busy),
            failed=float(self._writer.failure is not None),
            ended=float(self._ending.asked),
            cost_s=self._buffers.copy_s,
            step_s=self._step_s,
            sending=float(self._replicator is not None and self._replicator.busy),
        )

    def after(self, done: int, totals: Tensor) -> bool:
        """What :meth:`Checkpoints.after` does when ``done`` steps are done."""
        self._ending.step_done()
        self._unread.append(totals)
        if self._state.device.type == "cuda" and done < self._next_read and not self._schedule.due(done):
            return False
        signals = self._read(done)
        decision = self._schedule.decide(done, signals)
        self._next_read = done + decision.steps_to_next
        self._measure(done)
        if decision.abandon:
            self._writer.abandon()
        if decision.snapshot:
            if signals.busy:  # the last step, or SIGTERM: a snapshot that cannot wait for a later step
                self.finish()
                self._ending.step_done()
            self._save(done)
        if self._replicator is not None and not signals.sending and not decision.end and done < self._config.num_steps:
            self._replicator.take(self._tensors | self._state.random(), self._about(done))
        return decision.end

    def finish(self) -> None:
        """Wait until the last checkpoint is complete or abandoned. A collective call: no rank begins another checkpoint
        while rank 0 still removes what the last one replaced."""
        self._ending.lift_limit()
        self._writer.wait_for_part()
        failed = torch.tensor([float(self._writer.failure is not None)], device=self._state.device)
        if self._world_size > 1:
            add_over_ranks(failed)
        is_abandoned = bool(failed.item())
        if is_abandoned:
            self._writer.abandon()
        self._writer.finish()
        if is_abandoned and self._state.rank == 0:  # every rank has ended its part
            self._writer.discard()
        if self._replicator is not None:
            self._replicator.finish()
        if self._world_size > 1:
            add_over_ranks(failed)

    def _read(self, done: int) -> Signals:
        """The newest signals, summed over all ranks. On a GPU this waits for the device."""
        rows = torch.stack(self._unread).tolist()
        self._unread.clear()
        try:
            check_finite(rows, last_step=done - 1)
        except NotFiniteError:
            self.finish()
            self._wait_for_ranks()  # the launcher and the driver end all ranks soon after the first one has ended
            raise
        return Signals(*rows[-1][NUM_FIGURES:])

    def _wait_for_ranks(self) -> None:
        if self._world_size > 1:
            add_over_ranks(torch.zeros(1, device=self._state.device)).item()

    def _measure(self, done: int) -> None:
        """Compute the mean time of a step since the last read. On a GPU, only the time between reads is device time."""
        now_s = time.monotonic()
        self._step_s = (now_s - self._read_s) / (done - self._read_done)
        self._read_s, self._read_done = now_s, done

    def _save(self, done: int) -> None:
        """Copy the state into the buffers, and start to write them."""
        with span(Stage.CHECKPOINT_SNAPSHOT):
            self._buffers.copy_from(self._tensors | self._state.random())
        self._writer.begin(self._buffers, self._about(done))

    def _about(self, done: int) -> About:
        assert self._options.run_id is not None
        return About(
            step=done,
            run_id=self._options.run_id,
            attempt=self._options.attempt or 0,
            world_size=self._world_size,
            training=facts_of(self._config),
        )
