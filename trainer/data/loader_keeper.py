"""Keeps the data loader of a host alive: restarts one that was killed or stopped, and reports what cannot be repaired.

starter ---- fork ----> data-keeper ---- fork ----> data-loader       the process that has the data open
launcher, executor,         | sign of life every second <-- |
or local rank 0             |
                            | it ended, or gave no sign for 30 s: reported, killed, another one starts
                            | five times without a batch, or unusable data: each rank fails with the reason

Both end with the starter, also with kill -9. The starter does not restart loaders itself: under torchrun it is a rank,
which has threads and must not fork. The keeper has no threads, and is forked before the ranks start theirs.
"""

import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from telemetry.errors import RankscopeError
from telemetry.printable import log, write_lines
from telemetry.process.child_process import RestartPauses, birth_of, name_process, tie_to_parent
from trainer.config import TrainConfig
from trainer.data.host_loader import FILLED, HostLoader
from trainer.data.host_memory import Ends, HostMemory, Layout, LoaderAddress
from trainer.data.tokens import Tokens, load_tokens
from trainer.rank_status import manner

KEEPER, LOADER = "data-keeper", "data-loader"
"""Names of the processes."""
SILENT_S = 30.0
"""A loader without a sign of life for this time is killed."""
FIRST_PAUSE_S = 0.2
MOST_FAILURES = 5
"""Number of failures in a row, without a batch, after which the keeper starts no further loader."""
KILLED_S = 10.0
"""Longest wait for the end of a killed loader. A loader that waits for a dead file system may never end."""
REPORTED = 3
"""Exit status of a loader that has sent an error to the ranks."""
POLL_S = 0.05
STANDARD = (0, 1, 2)
_CHUNK_BYTES = 4096


class LoaderProcess:
    """The starter's handle of the loader of ``ranks``, which all are on this host.

    Create it in the main thread, before there are other threads. If ``tokens`` is None, the loader reads them.

    Raises:
        OSError: there is not enough memory, or no process can be started.
    """

    def __init__(
        self, config: TrainConfig, ranks: Sequence[int], tokens: Tokens | None, *, silent_s: float = SILENT_S
    ) -> None:
        layout, starter = Layout.of(config, ranks), os.getpid()
        ends = Ends.create(layout)
        try:
            self._pid = os.fork()
            if not self._pid:
                _become(KEEPER, starter, lambda: _keep(Keeper(config, ranks, tokens, ends, silent_s), ends))
        finally:
            ends.close()
        self.address = LoaderAddress(
            pid=self._pid,
            born=birth_of(self._pid),
            ranks=tuple(ranks),
            memory=ends.memory,
            requests=ends.requests[1],
            answers=tuple(answers for answers, _ in ends.answers),
        )

    def end(self) -> None:
        """Kill the keeper. The kernel kills the loader with it."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0


def _keep(keeper: "Keeper", ends: Ends) -> None:
    """Run ``keeper``. Release the files of the starter first: locks, sockets and pipes must not stay open here."""
    kept = {*STANDARD, *ends.descriptors}
    with suppress(AttributeError, OSError, ValueError):  # stderr is closed, or a program has replaced it
        kept.add(sys.stderr.fileno())
    opened = {int(name) for name in os.listdir("/proc/self/fd")}
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in opened - kept - {nothing}:
        os.dup2(nothing, descriptor, inheritable=False)  # not closed: objects of the starter may close it later
    keeper.run()


def _become(name: str, parent: int, work: Callable[[], object]) -> NoReturn:
    """Do ``work`` in a forked child, and end the child. Never returns."""
    status = 1
    try:
        tie_to_parent(parent)
        name_process(name)
        work()
    except BaseException:
        write_lines(traceback.format_exc())
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


class Keeper:
    """The work of the keeper process."""

    def __init__(
        self, config: TrainConfig, ranks: Sequence[int], tokens: Tokens | None, ends: Ends, silent_s: float
    ) -> None:
        self._config, self._ranks, self._tokens, self._ends = config, ranks, tokens, ends
        self._silent_ms = silent_s * 1000
        self._memory = HostMemory(ends.memory, Layout.of(config, ranks))
        self._num_failures = 0
        """Failures in a row. A loader counts as failed until it has prepared a batch."""
        self._num_loaders = 0
        """Number of loaders that have ended."""

    def run(self) -> NoReturn:
        """Run until the process is killed, even without a loader: ranks use the descriptors of this process."""
        pauses = RestartPauses(FIRST_PAUSE_S)
        while reason := self._one_loader(pauses):
            if self._num_failures >= MOST_FAILURES:
                text = f"the data loader failed {MOST_FAILURES} times in a row; the last one {reason}"
                self._ends.fail(self._memory, text, "look for its messages in the output of the launcher and in dmesg")
                break
            self._num_loaders += 1
            pause_s = pauses.after_death(time.monotonic())
            log(f"the data loader {reason}; another one starts in {pause_s:g} s")
            time.sleep(pause_s)
        while True:
            signal.pause()

    def _one_loader(self, pauses: RestartPauses) -> str:
        """Start a loader and wait for its end. Returns why it ended; empty if it has sent the reason to the ranks."""
        beats, send_beats = os.pipe()
        keeper = os.getpid()
        pauses.started(time.monotonic())
        self._num_failures += 1
        try:
            pid = os.fork()
        except OSError as error:
            return f"cannot start: {error}"
        else:
            if not pid:
                os.close(beats)
                _become(LOADER, keeper, lambda: self._load(send_beats))
            is_silent = self._watch(beats, send_beats)
            return self._end(pid, is_silent=is_silent)
        finally:
            os.close(beats)

    def _load(self, send_beats: int) -> None:
        """The main function of the loader process. SIGBUS ends it at once if a mapped file is cut."""
        signal.signal(signal.SIGBUS, signal.SIG_DFL)
        os.set_blocking(send_beats, False)
        config = self._config
        try:
            tokens = self._tokens
            if tokens is None:
                tokens = load_tokens(config.data, vocab_size=config.model.vocab_size)
            HostLoader(config, self._ranks, tokens, self._ends, number=self._num_loaders, beats=send_beats).run()
        except RankscopeError as error:
            self._ends.fail(self._memory, error.message, error.hint)
            os._exit(REPORTED)

    def _watch(self, beats: int, send_beats: int) -> bool:
        """Wait until the loader ends, or does not respond. Returns whether it does not respond.

        This waits twice for half of the time: if this process was stopped too, the loader gets time for a sign.
        """
        os.close(send_beats)
        poll = select.poll()
        poll.register(beats, select.POLLIN)
        while poll.poll(self._silent_ms / 2) or poll.poll(self._silent_ms / 2):
            signs = os.read(beats, _CHUNK_BYTES)
            if not signs:
                return False
            if FILLED in signs:
                self._num_failures = 0
        return True

    def _end(self, pid: int, *, is_silent: bool) -> str:
        """Collect the exit status of the loader, and kill it first if it is silent. Returns why it ended, as
        :meth:`_one_loader`."""
        if is_silent:
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + KILLED_S
        while (found := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if found[0] == 0:
            self._num_failures = MOST_FAILURES
            return "does not end after SIGKILL: its file system does not answer"
        status = os.waitstatus_to_exitcode(found[1])
        if is_silent:
            return f"did not respond for {self._silent_ms / 1000:g} s and was killed"
        return "" if status == REPORTED else manner(status)
