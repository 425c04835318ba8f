"""All ranks of one machine as child processes, watched until the last has ended.

launcher ---- fork ----> rank 0 .. rank 7      each in logs/rank-0000N.log
    |  watches: an end, a signal, a line of progress; ranks and agent end with it, even with kill -9
    |  a rank that dies takes the others with it, and is named
    '--- agent, when there is a collector: started again should it die

The launcher's line of progress: follows OUT/progress.jsonl, writes to stderr.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing
import torch.optim

from telemetry.printable import printable_lines
from telemetry.process.child_process import tie_to_parent
from telemetry.process.signals import LIMIT_S, SIGNAL_BASE, on_first_ending
from trainer.agent import AgentKeeper
from trainer.checkpoint.folder import complete_steps
from trainer.config import RunOptions, TrainConfig
from trainer.data.tokens import Tokens
from trainer.progress import FILE_NAME
from trainer.rank import ENDED_EARLY, FAILED, Seat, run_and_exit

EVERY_STEPS = 10


class ProgressLine:
    """One line, rewritten on a terminal; elsewhere a line every ten steps."""

    def __init__(self, out: Path, num_steps: int, *, resumes: bool = False) -> None:
        self._path = out / FILE_NAME
        self._num_steps = num_steps
        if not resumes:
            self._path.unlink(missing_ok=True)
        self._offset = self._path.stat().st_size if self._path.exists() else 0
        self._terminal = sys.stderr.isatty()

    def update(self) -> None:
        """Show what has come since the last look."""
        for figures in self._new():
            if self._terminal:
                print(f"\r{self._words(figures)}\x1b[K", end="", file=sys.stderr, flush=True)
            elif figures["step"] % EVERY_STEPS == EVERY_STEPS - 1 or figures["step"] + 1 == self._num_steps:
                print(self._words(figures), file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Show the rest and leave the line."""
        self.update()
        if self._terminal:
            print(file=sys.stderr)

    def _new(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as source:
            source.seek(self._offset)
            whole = source.read().rpartition(b"\n")[0]
        self._offset += len(whole) + 1 if whole else 0
        return [json.loads(line) for line in whole.splitlines()]

    def _words(self, figures: dict[str, Any]) -> str:
        words = f"step {figures['step'] + 1}/{self._num_steps}  loss {figures['loss']:.3f}"
        words += f"  {figures['step_seconds']:.2f} s  {figures['tokens_per_second']:,.0f} tokens/s"
        return words + (f"  MFU {figures['mfu']:.1%}" if "mfu" in figures else "")


LOOK_EVERY_S = 0.2
GRACE_S = 1.0
SETTLE_S = 0.5
LINGER_S = 1.0
SAVE_S = 60.0
"""How long ranks may take to save a checkpoint after SIGTERM."""
UNASKED_S = 0.1
"""For so long nobody asks for the status of a dead rank: until then it can be read by others, too."""


@dataclass(slots=True)
class _Interrupt:
    """The signal that asked the launcher to end, 0 while none has."""

    number: int = 0

    def note(self, number: int) -> None:
        self.number = number


def run_ranks(config: TrainConfig, options: RunOptions, tokens: Tokens | None) -> int:
    """Train with all ranks on this machine; 0 when all of them finished, 1 when one failed, 128 + n on signal n to the
    launcher, 143 when all ended early because a rank got SIGTERM."""
    interrupt = _Interrupt()
    on_first_ending(interrupt.note, limit_s=LIMIT_S + SAVE_S if options.checkpoints else LIMIT_S)
    with _rendezvous() as init_method:
        resumes = options.checkpoints is not None and bool(complete_steps(options.checkpoints))
        line = ProgressLine(options.out, config.num_steps, resumes=resumes)  # before a rank writes what it follows
        processes = _start(config, options, tokens, init_method)
        try:
            return _watch(processes, line, options, interrupt)
        finally:
            _end_all(processes)


def log_path(out: Path, rank: int) -> Path:
    """What rank ``rank`` printed."""
    return out / "logs" / f"rank-{rank:05d}.log"


def _start(config: TrainConfig, options: RunOptions, tokens: Tokens | None, init_method: str) -> list[BaseProcess]:
    """On a CPU by fork, from a process that has torch and no threads; CUDA does not survive a fork."""
    (options.out / "logs").mkdir(parents=True, exist_ok=True)
    fork = config.device == "cpu"
    context: Any = torch.multiprocessing.start_processes(  # type: ignore[no-untyped-call]
        _child,
        args=(config, options, tokens if fork else None, init_method, os.getpid()),
        nprocs=config.parallel.topology.world_size,
        join=False,
        start_method="fork" if fork else "spawn",
    )
    return list(context.processes)


def _child(
    rank: int, config: TrainConfig, options: RunOptions, tokens: Tokens | None, init_method: str, parent: int
) -> None:
    """A rank's process."""
    tie_to_parent(parent)
    with log_path(options.out, rank).open("ab", buffering=0) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    world_size = config.parallel.topology.world_size
    seat = Seat(rank=rank, local_rank=rank, world_size=world_size, init_method=init_method)
    sys.exit(run_and_exit(seat, config, options, tokens))


def _watch(processes: Sequence[BaseProcess], line: ProgressLine, options: RunOptions, interrupt: _Interrupt) -> int:
    with AgentKeeper(options, lambda: interrupt.number) as agent:
        while any(process.exitcode is None for process in processes):
            if wait_for_any([process.sentinel for process in processes if process.exitcode is None], LOOK_EVERY_S):
                time.sleep(UNASKED_S)
            line.update()
            agent.look_after()
            if interrupt.number:
                if options.checkpoints and interrupt.number == signal.SIGTERM:
                    _let_save(processes)
                _end_all(processes)
                return SIGNAL_BASE + interrupt.number
            if any(_has_failed(process) for process in processes):
                _linger(processes)
                print(printable_lines(_obituary(processes, options.out)), file=sys.stderr)
                _end_all(processes)
                return FAILED
        line.finish()
    return max(process.exitcode or 0 for process in processes)


def _has_failed(process: BaseProcess) -> bool:
    return process.exitcode not in (None, 0, ENDED_EARLY)


def _let_save(processes: Sequence[BaseProcess]) -> None:
    """Ask all ranks to end after the step and a checkpoint, and give them time for it."""
    for process in processes:
        if process.exitcode is None:
            process.terminate()
    deadline = time.monotonic() + SAVE_S
    while time.monotonic() < deadline:
        if not any(process.exitcode is None for process in processes):
            return
        wait_for_any([process.sentinel for process in processes if process.exitcode is None], LOOK_EVERY_S)
        if any(_has_failed(process) for process in processes):
            return


def _linger(processes: Sequence[BaseProcess]) -> None:
    """Let a moment pass before the others are ended: whoever watches can tell the first death from theirs."""
    deadline = time.monotonic() + LINGER_S
    while time.monotonic() < deadline:
        living = [process.sentinel for process in processes if process.exitcode is None]
        if not living:
            return
        wait_for_any(living, deadline - time.monotonic())


def _obituary(processes: Sequence[BaseProcess], out: Path) -> str:
    """Names the rank that ended first. Its peers may have failed over it by now: a lost peer ends a rank with
    status 1, so a signal or another status speaks first."""
    ended = {rank: process.exitcode for rank, process in enumerate(processes) if _has_failed(process)}
    odd = {rank: code for rank, code in ended.items() if code != FAILED} or ended
    words = [f"rank {rank} {_manner(code)} (pid {processes[rank].pid})" for rank, code in odd.items()]
    return f"training failed: {', '.join(words)}\n\nhint: see its log {log_path(out, min(odd))}"


def _manner(exitcode: int | None) -> str:
    assert exitcode is not None
    return f"was killed by {signal.Signals(-exitcode).name}" if exitcode < 0 else f"ended with status {exitcode}"


def _end_all(processes: Sequence[BaseProcess]) -> None:
    """Ask, wait a little, kill. A stopped rank acts on a signal only when it is continued."""
    living = [process for process in processes if process.exitcode is None]
    for process in living:
        process.terminate()
        if process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
    deadline = time.monotonic() + GRACE_S
    while living and time.monotonic() < deadline:
        wait_for_any([process.sentinel for process in living], SETTLE_S)
        living = [process for process in living if process.exitcode is None]
    for process in living:
        process.kill()
    for process in processes:
        process.join()


@contextmanager
def _rendezvous() -> Iterator[str]:
    """A file that ranks of this machine meet in; no port to be taken, nothing to listen on."""
    folder = Path(tempfile.mkdtemp(prefix="rankscope-"))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        yield f"file://{folder / 'rendezvous'}"
    finally:
        with suppress(OSError):
            shutil.rmtree(folder)
