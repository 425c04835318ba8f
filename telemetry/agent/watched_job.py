"""The last known state of watched ranks, the ends of their processes, and the evidence that waits to be shipped.

Only the newest evidence of each rank and kind is kept, so a long outage of the collector costs no memory.

The first death matters: the launcher ends the other processes within a moment. One thread waits for all processes at
once (a pidfd becomes readable when its process ends) and records the wall-clock time. On kernels without pidfd, the
agent uses the time at which it noticed the death. Until the parent reaps it, a dead process also shows its exit
status. A rank that another process terminated is not the one that failed first.
"""

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from telemetry.agent.host import Owner
from telemetry.agent.stall import Phase, StallDetector
from telemetry.evidence.collect import Standing
from telemetry.evidence.evidence import Evidence, Kind
from telemetry.evidence.logs import JobLogs
from telemetry.evidence.rank_state import ProcessState, is_alive
from telemetry.evidence.usual import RecentOperations
from telemetry.record.reader import RankReader
from telemetry.record.state_page import LiveState
from telemetry.records import RankIdentity


class DeathWatch:
    """Records when processes end. ``on_death`` is called from its thread."""

    def __init__(self, on_death: Callable[[], None] = lambda: None) -> None:
        self._on_death = on_death
        self._pids: dict[int, int] = {}
        self._died_ns: dict[int, int] = {}
        self._ended_by: dict[int, str] = {}
        self._poll = select.poll()
        self._lock = threading.Lock()
        self._wake_end, self._wake = os.pipe()
        self._poll.register(self._wake_end, select.POLLIN)
        self._thread = threading.Thread(target=self._watch, name="rankscope-deaths", daemon=True)
        self._thread.start()

    def follow(self, pid: int) -> bool:
        """Record the end of a process that lives now. Returns False if that is not possible."""
        if not self._thread.is_alive():
            return False
        with suppress(OSError, AttributeError), self._lock:
            self._died_ns.pop(pid, None)
            self._ended_by.pop(pid, None)
            pidfd = os.pidfd_open(pid)
            self._pids[pidfd] = pid
            self._poll.register(pidfd, select.POLLIN)
            os.write(self._wake, b".")  # a running poll ignores new registrations
            return True
        return False

    def died_ns(self, pid: int) -> int:
        """Wall clock of the end of a process; 0 if it was not observed."""
        return self._died_ns.get(pid, 0)

    def ended_by(self, pid: int) -> str:
        """How a process ended, such as ``SIGKILL`` or ``exit 1``; empty if that was not observed."""
        return self._ended_by.get(pid, "")

    def close(self) -> None:
        """End the thread. Safe to repeat."""
        if self._thread.is_alive():
            os.write(self._wake, b"x")
            self._thread.join()
            for pidfd in (*self._pids, self._wake, self._wake_end):
                os.close(pidfd)

    def _watch(self) -> None:
        while True:
            ready = self._poll.poll()
            now = time.time_ns()
            died = [fd for fd, _ in ready if fd != self._wake_end]
            for pidfd in died:
                self._ended_by[self._pids[pidfd]] = _manner(self._pids[pidfd])
            for pidfd in died:
                with self._lock:
                    self._poll.unregister(pidfd)
                    self._died_ns[self._pids.pop(pidfd)] = now
                    os.close(pidfd)
            if died:
                self._on_death()
            if len(died) < len(ready) and b"x" in os.read(self._wake_end, 4096):
                return


def _manner(pid: int) -> str:
    """How a process ended; empty if it lives or was reaped. The last field of ``stat`` is the result of wait()."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        state, status = fields[0], int(fields[-1])
    except (OSError, ValueError, IndexError):
        return ""
    if state not in "ZX":
        return ""
    number = os.waitstatus_to_exitcode(status)
    return signal.Signals(-number).name if number < 0 else f"exit {number}"


BATCH_CHARACTERS = 8 * 2**20


class EvidenceQueue:
    """Evidence that waits to be shipped. For one thread that puts and one that takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[tuple[Owner, int, Kind], Evidence] = {}
        self.news = threading.Event()
        """Set by :meth:`put`; cleared by the reader."""

    def put(self, owner: Owner, evidence: Iterable[Evidence]) -> None:
        """Add evidence. It replaces earlier evidence of the same rank and kind."""
        with self._lock:
            self._waiting.update({(owner, item.rank, item.kind): item for item in evidence})
        self.news.set()

    def batches(self) -> Iterator[tuple[Owner, list[Evidence]]]:
        """The waiting evidence, in parts for one post each. It stays in the queue until :meth:`sent` is called."""
        with self._lock:
            waiting = sorted(self._waiting.items(), key=lambda item: item[0])
        batch: list[Evidence] = []
        size, of = 0, None
        for (owner, _, _), item in waiting:
            if of is not None and batch and (owner != of or size + len(item.body) > BATCH_CHARACTERS):
                yield of, batch
                batch, size = [], 0
            of = owner
            batch.append(item)
            size += len(item.body)
        if of is not None:
            yield of, batch

    def sent(self, owner: Owner, batch: Iterable[Evidence]) -> None:
        """Remove ``batch``, which is stored. Newer evidence keeps waiting."""
        with self._lock:
            for item in batch:
                if self._waiting.get((owner, item.rank, item.kind)) is item:
                    del self._waiting[owner, item.rank, item.kind]

    def __len__(self) -> int:
        return len(self._waiting)


@dataclass(slots=True, kw_only=True)
class WatchedRank:
    """A rank on this host, as of the last check."""

    reader: RankReader
    operations: RecentOperations
    identity: RankIdentity
    state: LiveState
    process: ProcessState
    pid: int = 0
    """Process id in the PID namespace of the agent; 0 if the process is not followed or cannot be seen."""
    living: ProcessState = "alive"
    """The last state of the process before it ended."""
    died_ns: int = 0
    ended_by: str = ""
    stamped: bool = False
    """Whether the kernel reports the end of its process."""
    is_reported: bool = False
    """Whether its end is recorded, or was normal."""
    stamp_is_late: bool = False
    """Whether the time of the end arrived after the end was recorded."""

    @property
    def over(self) -> bool:
        return self.process in ("dead", "ended")


@dataclass(slots=True)
class WatchedJob:
    """The ranks of one attempt on this host."""

    detector: StallDetector
    ranks: dict[Path, WatchedRank] = field(default_factory=dict)
    logs: JobLogs = field(default_factory=JobLogs)
    step: int | None = None
    taken_ns: int = 0
    """When evidence of the current stall was taken last."""
    taken_step: int | None = None
    """The step of that evidence; None once another step begins. It stays if no rank lives any more."""
    taken_over: int = 0
    """The number of ranks that were over when that evidence was taken."""

    def failed(self, rank: WatchedRank) -> bool:
        """Whether the process was killed, or its log shows a fault."""
        return rank.over and (rank.process == "dead" or self.logs.shows_fault(rank.identity.rank))

    def leave_logs(self) -> None:
        """Close the logs of processes that have ended, and whose end is recorded."""
        for rank in self.ranks.values():
            number = rank.identity.rank
            is_reported = rank.over and rank.is_reported and self.logs.follows(number)
            if is_reported and not is_alive(rank.identity, rank.reader.folder):
                self.logs.leave(number)

    def standing(self, rank: WatchedRank) -> Standing:
        return Standing(
            folder=rank.reader.folder,
            identity=rank.identity,
            state=rank.state,
            process=rank.process,
            living=rank.living,
            died_ns=rank.died_ns,
            ended_by=rank.ended_by,
            habits=tuple(rank.operations.habits(rank.state)),
            log=self.logs.body(rank.identity.rank),
            stands_still=self.detector.phase is Phase.STALLED,
        )
