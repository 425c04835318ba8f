"""The ranks of one node as child processes: started, watched and ended together.

parent ---- fork ----> rank 0 .. rank 7      each in logs/rank-0000N.log
       '--- fork ----> data loader           one for all of them, see data/loader_keeper.py
               they end with their parent, even with kill -9

``torch.multiprocessing`` starts them, as torch elastic does. Its worker group is not used: it reports only one of
several ended ranks, by index, and that rank may be a victim of the first one.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch.multiprocessing

from telemetry.printable import write_lines
from telemetry.process.child_process import tie_to_parent
from trainer.config import TrainConfig
from trainer.data.loader_keeper import LoaderProcess
from trainer.data.tokens import Tokens
from trainer.output import LOGS, open_log
from trainer.rank import Data, Seat, run_and_exit
from trainer.rank_messages import RankMessages
from trainer.rank_status import NOT_FINITE, NOT_FINITE_TEXT, causing, is_failure, manner
from trainer.run_options import RunOptions

GRACE_S = 1.0
SETTLE_S = 0.5
LINGER_S = 1.0
SAVE_S = 60.0
"""How long ranks may take to save a checkpoint after SIGTERM."""
UNASKED_S = 0.1
"""The exit status of a dead rank is not collected for this time, so that other processes can read it too."""


def log_path(out: Path, rank: int) -> Path:
    """The file with the output of rank ``rank``."""
    return out / LOGS / log_name(rank)


def log_name(rank: int) -> str:
    return f"rank-{rank:05d}.log"


class RankProcesses:
    """Starts one process for each seat. On a CPU by fork, from a process that has torch and no threads; CUDA does not
    survive a fork.

    Raises:
        OSError: a log cannot be opened, or a process cannot be started. No process is left then.
    """

    def __init__(
        self, seats: Sequence[Seat], config: TrainConfig, options: RunOptions, tokens: Tokens | None = None
    ) -> None:
        for seat in seats:  # here, so that a log that cannot be opened is reported before a rank starts
            open_log(options.out, log_name(seat.rank)).close()
        self._out = options.out
        self._processes: dict[int, BaseProcess] = {}
        self._messages = RankMessages()
        self._has_warned = False
        self._loader: LoaderProcess | None = None
        data: Data = tokens if config.device == "cpu" else None
        try:
            if config.data.shared_loader:
                self._loader = LoaderProcess(config, [seat.rank for seat in seats], tokens)
                data = self._loader.address
            for seat in seats:
                with self._messages.connect(seat.rank) as sender:
                    self._processes[seat.rank] = _start(replace(seat, messages=sender), config, options, data)
        except BaseException:  # such as too many processes: no rank trains without the others
            self.kill()
            raise

    @property
    def pids(self) -> Mapping[int, int]:
        """Rank -> pid, also of ranks that have ended."""
        return {rank: process.pid or 0 for rank, process in self._processes.items()}

    @property
    def living(self) -> bool:
        """Whether at least one rank has not ended."""
        return any(process.exitcode is None for process in self._processes.values())

    @property
    def statuses(self) -> Mapping[int, int]:
        """Rank -> exit status of the ranks that have ended; -n if signal n killed the rank."""
        found = {rank: process.exitcode for rank, process in self._processes.items()}
        return {rank: status for rank, status in found.items() if status is not None}

    @property
    def failures(self) -> Mapping[int, int]:
        """Rank -> exit status of the ranks that failed."""
        return {rank: status for rank, status in self.statuses.items() if is_failure(status)}

    @property
    def checkpoint_problem(self) -> str:
        """Why the newest checkpoint could not be written, on one line; empty if no problem is known."""
        return self._messages.checkpoint_problem

    def show_space_warning(self) -> None:
        """Show, once, the warning that checkpoints will not fit on the disk, if a rank has sent it."""
        if not self._has_warned and (warning := self._messages.space_warning):
            self._has_warned = True
            write_lines(warning)

    def failure(self, rank: int) -> str:
        """Why a rank failed, on one line; empty if it sent no reason."""
        return self._messages.failure(rank)

    def wait(self, seconds: float) -> bool:
        """Wait until a living rank ends, at most ``seconds``. Returns whether one ended."""
        ended = bool(wait_for_any(self._sentinels(), seconds))
        if ended:
            time.sleep(UNASKED_S)
        return ended

    def linger(self) -> None:
        """Wait up to ``LINGER_S`` before the other ranks are ended, so that observers can tell which rank died
        first."""
        deadline = time.monotonic() + LINGER_S
        while self.living and (left_s := deadline - time.monotonic()) > 0:
            wait_for_any(self._sentinels(), left_s)

    def ask_to_save(self) -> None:
        """Ask all ranks to end after the step and a checkpoint."""
        for process in self._processes.values():
            if process.exitcode is None:
                process.terminate()

    def let_save(self, interrupted: Callable[[], int] = lambda: 0) -> None:
        """Ask all ranks to end after the step and a checkpoint, and wait up to ``SAVE_S`` for this. The wait also ends
        if a rank fails, or if ``interrupted`` returns the number of a signal."""
        self.ask_to_save()
        deadline = time.monotonic() + SAVE_S
        while self.living and not self.failures and not interrupted() and time.monotonic() < deadline:
            self.wait(SETTLE_S)

    def end(self) -> None:
        """Ask ranks to end, wait up to ``GRACE_S``, and kill those that still live. SIGCONT lets a stopped rank act on
        the signal."""
        living = [process for process in self._processes.values() if process.exitcode is None]
        for process in living:
            process.terminate()
            if process.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGCONT)
        deadline = time.monotonic() + GRACE_S
        while self.living and time.monotonic() < deadline:
            wait_for_any(self._sentinels(), SETTLE_S)
        self.kill()

    def kill(self) -> None:
        """Kill the ranks that live, and their data loader, and collect the exit status of all."""
        for process in self._processes.values():
            if process.exitcode is None:
                process.kill()
        for process in self._processes.values():
            process.join()
        if self._loader is not None:
            self._loader.end()

    def first_failures(self) -> str:
        """Name the ranks that failed first. Their peers may have failed because of them: a lost peer ends a rank with
        status 1. If any rank ended by a signal or with another status, only such ranks are named."""
        failed = self.failures
        causes = causing(failed)
        reasons = ", ".join(
            f"rank {rank} {manner(failed[rank], self.failure(rank))} (pid {self.pids[rank]})" for rank in causes
        )
        if NOT_FINITE in failed.values():
            reasons = NOT_FINITE_TEXT
        return f"training failed: {reasons}\n\nhint: see its log {log_path(self._out, min(causes))}"

    def _sentinels(self) -> list[int]:
        return [process.sentinel for process in self._processes.values() if process.exitcode is None]


def _start(seat: Seat, config: TrainConfig, options: RunOptions, data: Data) -> BaseProcess:
    """Start one rank. torch can start several ranks at once, but if one start fails, it leaves the others running."""
    fork = config.device == "cpu"
    context: Any = torch.multiprocessing.start_processes(  # type: ignore[no-untyped-call]
        _child,
        args=(seat, config, options, data, os.getpid()),
        nprocs=1,
        join=False,
        start_method="fork" if fork else "spawn",
    )
    process: BaseProcess = context.processes[0]
    return process


def _child(_: int, seat: Seat, config: TrainConfig, options: RunOptions, data: Data, parent: int) -> None:
    """The process of a rank."""
    tie_to_parent(parent)
    with open_log(options.out, log_name(seat.rank)) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.exit(run_and_exit(seat, config, options, data))
