"""Starts all ranks of one machine, and watches them until the last has ended.

launcher ----> rank processes (``rank_processes.py``)
    |  watches for ended ranks, signals and progress
    |  if a rank fails: names it, and ends the others
    '--- agent, if there is a collector. It is restarted if it dies

The launcher shows a line of progress on stderr. It follows OUT/progress.jsonl.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from telemetry.printable import printable_lines, write_lines
from telemetry.process.signals import LIMIT_S, SIGNAL_BASE, on_first_ending
from trainer.agent import AgentKeeper
from trainer.checkpoint.folder import complete_steps
from trainer.config import TrainConfig
from trainer.data.tokens import Tokens
from trainer.output import PROGRESS, read_output
from trainer.rank import Seat
from trainer.rank_processes import SAVE_S, RankProcesses
from trainer.rank_status import FAILED
from trainer.run_options import RunOptions

EVERY_STEPS = 10


class ProgressLine:
    """Shows the progress of the job: one line that is rewritten on a terminal, elsewhere a new line every ten steps."""

    def __init__(self, out: Path, num_steps: int, *, resumes: bool = False) -> None:
        self._path = out / PROGRESS
        self._num_steps = num_steps
        if not resumes:
            self._path.unlink(missing_ok=True)
        self._offset = 0
        with suppress(FileNotFoundError), read_output(self._path) as source:
            self._offset = os.fstat(source.fileno()).st_size
        self._terminal = sys.stderr.isatty()

    def update(self) -> None:
        """Show the steps since the last call."""
        for figures in self._new():
            if self._terminal:
                print(f"\r{self._words(figures)}\x1b[K", end="", file=sys.stderr, flush=True)
            elif figures["step"] % EVERY_STEPS == EVERY_STEPS - 1 or figures["step"] + 1 == self._num_steps:
                print(self._words(figures), file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Show the last steps, and end the line."""
        self.update()
        if self._terminal:
            print(file=sys.stderr)

    def _new(self) -> list[dict[str, Any]]:
        whole = b""
        with suppress(OSError), read_output(self._path) as source:
            source.seek(self._offset)
            whole = source.read().rpartition(b"\n")[0]
        self._offset += len(whole) + 1 if whole else 0
        return list(_figures_in(whole))

    def _words(self, figures: dict[str, Any]) -> str:
        words = f"step {figures['step'] + 1}/{self._num_steps}  loss {figures['loss']:.3f}"
        words += f"  {figures['step_seconds']:.2f} s  {figures['tokens_per_second']:,.0f} tokens/s"
        return words + (f"  MFU {figures['mfu']:.1%}" if "mfu" in figures else "")


def _figures_in(lines: bytes) -> Iterator[dict[str, Any]]:
    """The records in ``lines``. A line that was torn when the disk was full is left out."""
    for line in lines.splitlines():
        with suppress(ValueError):
            yield json.loads(line)


LOOK_EVERY_S = 0.2


@dataclass(slots=True)
class _Interrupt:
    """The signal that asked the launcher to end; 0 while none did."""

    number: int = 0

    def note(self, number: int) -> None:
        self.number = number


class _CheckpointLine:
    """Shows why checkpoints cannot be written: when this begins, and at the end if the last checkpoint is missing."""

    def __init__(self, ranks: RankProcesses) -> None:
        self._ranks = ranks
        self._shown = ""

    def update(self) -> None:
        """Show a new problem. Training continues."""
        self._ranks.show_space_warning()
        problem = self._ranks.checkpoint_problem
        if problem and not self._shown:
            write_lines(f"the training continues, but a {problem}")
        self._shown = problem

    def finish(self) -> None:
        """Show that the state after the last step is not saved, if that is so."""
        if problem := self._ranks.checkpoint_problem:
            write_lines(f"the state after the last step is not saved: {problem}")


def run_ranks(config: TrainConfig, options: RunOptions, tokens: Tokens | None) -> int:
    """Train with all ranks on this machine. Returns 0 if all ranks finished, 1 if a rank failed, 128 + n if the
    launcher received signal n, 128 + SIGTERM if a rank received SIGTERM and all ranks ended early."""
    interrupt = _Interrupt()
    on_first_ending(interrupt.note, limit_s=LIMIT_S + SAVE_S if options.checkpoints else LIMIT_S)
    with _rendezvous() as init_method:
        resumes = options.checkpoints is not None and bool(complete_steps(options.checkpoints))
        line = ProgressLine(options.out, config.num_steps, resumes=resumes)  # before a rank writes the file
        size = config.parallel.topology.world_size
        seats = [Seat(rank=rank, local_rank=rank, world_size=size, init_method=init_method) for rank in range(size)]
        ranks = RankProcesses(seats, config, options, tokens)
        try:
            return _watch(ranks, line, options, interrupt)
        finally:
            ranks.end()


def _watch(ranks: RankProcesses, line: ProgressLine, options: RunOptions, interrupt: _Interrupt) -> int:
    checkpoints = _CheckpointLine(ranks)
    with AgentKeeper(options, lambda: interrupt.number) as agent:
        while ranks.living:
            ranks.wait(LOOK_EVERY_S)
            line.update()
            checkpoints.update()
            agent.restart_if_dead()
            if interrupt.number:
                if options.checkpoints and interrupt.number == signal.SIGTERM:
                    ranks.let_save()
                ranks.end()
                return SIGNAL_BASE + interrupt.number
            if ranks.failures:
                ranks.linger()
                print(printable_lines(ranks.first_failures()), file=sys.stderr)
                ranks.end()
                return FAILED
        line.finish()
    checkpoints.finish()
    return max(ranks.statuses.values())


@contextmanager
def _rendezvous() -> Iterator[str]:
    """A file for the rendezvous of the ranks on this machine. So they need no port and no listening socket."""
    folder = Path(tempfile.mkdtemp(prefix="rankscope-"))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        yield f"file://{folder / 'rendezvous'}"
    finally:
        with suppress(OSError):
            shutil.rmtree(folder)
