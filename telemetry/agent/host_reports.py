"""Ships the readings and events of this host's samplers, for every job that has ranks here.

    samplers --HostWatch--> this thread, once a second --> journal on disk, queue of rows
                                                                         |
                                               the agent's loop --ship---'

The rows go to each run and attempt that has living ranks on this host. A job that starts later also receives the
current state: GPUs that were found, links that are down. During a long outage of the collector the oldest rows are
dropped, and their number is logged. Events stay in the journal.
"""

import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from telemetry.agent.host import FollowedRank, Owner
from telemetry.agent.samplers.interface import Event
from telemetry.agent.sampling import HostWatch
from telemetry.agent.thinning import HostSample
from telemetry.errors import AheadError, UsageError
from telemetry.evidence import journal
from telemetry.host_metrics import WINDOW_S, Happening, Metric
from telemetry.printable import log
from telemetry.process.pid_namespace import pid_of
from telemetry.tables import HOST_SAMPLES
from telemetry.wire.codec import Ack, labelled


class Poster(Protocol):
    """Destination of rows. May block.

    Raises:
        UnreachableError: retry later.
        UsageError: refused permanently.
        RefusedRowsError: these rows are refused permanently; rows of other runs may be stored.
    """

    def post(self, table: str, rows: pa.Table) -> Ack:
        """Store rows; they are stored when this returns."""


MAX_SAMPLES = 200_000
MAX_EVENTS = 20_000
BATCH_ROWS = 20_000
TAKE_S = 1.0
_LOSSES = (Happening.LINK_DOWN, Happening.LINK_TAKEN_DOWN, Happening.DEVICE_GONE)
"""Events after which a device has no link, until an event reports the link or the GPU again."""
_UP = (Metric.NIC_UP, Metric.RDMA_UP)
SURE_NS = 2 * round(WINDOW_S * 1e9)
"""A level of 1 counts as recovery only this long after the loss, because a level is the mean of a window."""


@dataclass(slots=True)
class _Job:
    """The rows to ship for one attempt with ranks on this host."""

    folder: Path
    host: str
    samples: deque[HostSample] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    num_dropped: int = 0
    """Number of rows that newer rows replaced before they were shipped, since the last log line."""

    def add(self, samples: Sequence[HostSample], events: Sequence[Event]) -> None:
        too_many = len(self.samples) + len(samples) - MAX_SAMPLES, len(self.events) + len(events) - MAX_EVENTS
        self.num_dropped += sum(max(0, count) for count in too_many)
        self.samples.extend(samples)
        self.events.extend(events)


class LivingRanks:
    """The current training processes. One thread sets them, other threads read them."""

    def __init__(self) -> None:
        self._pids: Mapping[int, int] = {}

    def pids(self) -> Mapping[int, int]:
        """Rank -> pid, of the newest job on this host."""
        return self._pids

    def become(self, pids: Mapping[int, int]) -> None:
        """Set the processes. The mapping is replaced, never changed, so readers always get a consistent mapping."""
        self._pids = pids


class HostReports:
    """The agent's loop calls ``follow`` and ``ship``. A thread from ``start`` to ``stop`` takes rows and writes the
    journal, so it does not wait for shipping."""

    def __init__(self, watch: HostWatch, living: LivingRanks, *, own_host: str) -> None:
        self._watch = watch
        self._living = living
        self._own_host = own_host
        self._lock = threading.Lock()
        self._jobs: dict[Owner, _Job] = {}
        self._newest: Owner | None = None
        self._lost: dict[str, Event] = {}
        self._gpus: dict[str, Event] = {}
        self._complained = False
        self._unwanted = False
        self._ahead = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankscope-host-reports", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and take the last rows of the samplers. Safe to repeat."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self.take_in()

    def follow(self, ranks: Iterable[FollowedRank]) -> None:
        """Set the current ranks. For a new job, events of an earlier agent are read from the journal."""
        living = [rank for rank in ranks if not rank.done]
        if not living:
            return  # the last rows belong to the ranks that just ended
        newest = max(living, key=lambda rank: rank.tail.identity.started_ns).owner
        current = [rank.tail.identity for rank in living if rank.owner == newest and not rank.over]
        self._living.become({identity.rank: pid for identity in current if (pid := pid_of(identity))})
        owners = {rank.owner for rank in living}
        with self._lock:
            self._newest = newest
            self._jobs = {owner: job for owner, job in self._jobs.items() if owner in owners or job.events}
            for rank in living:
                if rank.owner not in self._jobs:
                    self._jobs[rank.owner] = self._joined(rank, living)

    def take_in(self) -> None:
        """Take the rows since the last call, for all jobs. Events are on the disk when this returns."""
        samples, events = self._watch.take()
        with self._lock:
            for event in events:
                self._remember(event)
            for sample in samples:
                lost = self._lost.get(sample.device)
                is_up = sample.metric in _UP and sample.value == 1.0
                if is_up and lost is not None and lost.at_ns < sample.at_ns - SURE_NS:
                    # The link recovered unobserved: it was up for a whole window after the loss.
                    events.append(
                        Event(at_ns=sample.at_ns, device=sample.device, name=Happening.LINK_UP, text="unseen")
                    )
                    self._remember(events[-1])
            for owner, job in self._jobs.items():
                own = owner == self._newest
                job.add([sample for sample in samples if own or not sample.device.startswith("rank")], events)
                self._write_down(job, events)

    def ship(self, poster: Poster, refused: Collection[Owner] = ()) -> None:
        """Post all waiting rows. After the collector refused a table (an old collector), rows are not sent any more.

        Raises:
            UnreachableError: retry later; the rows keep waiting.
        """
        for owner, job in [] if self._unwanted else list(self._jobs.items()):
            if owner in refused:
                continue
            for events in self._batches(job.events):
                self._post(poster, "host_events", labelled(journal.event_rows(job.host, events), *owner))
                self._drop(job.events, events)
            for samples in self._batches(job.samples):
                columns = [{"host": job.host, **asdict(sample)} for sample in samples]
                rows = pa.Table.from_pylist(columns, schema=HOST_SAMPLES)
                self._post(poster, "host_samples", labelled(rows, *owner))
                self._drop(job.samples, samples)
            with self._lock:
                num_dropped, job.num_dropped = job.num_dropped, 0
            if num_dropped:
                lost = f"{num_dropped} rows of this host for run {owner[0]}/{owner[1]} are lost"
                log(f"rankscope agent: the collector did not answer for a long time: {lost}")

    def _post(self, poster: Poster, table: str, rows: pa.Table) -> None:
        try:
            poster.post(table, rows)
        except AheadError as error:
            if not self._ahead:
                log(f"rankscope agent: {error.message}. Rows of this host are not stored until the clock is corrected")
            self._ahead = True
        except UsageError as error:
            if not self._unwanted:
                self._unwanted = True
                log(f"rankscope agent: rows of this host are not sent: {error.message}")

    def _joined(self, rank: FollowedRank, living: list[FollowedRank]) -> _Job:
        hosts = {other.tail.identity.host for other in living if other.owner == rank.owner}
        job = _Job(folder=rank.tail.reader.folder.parent, host=hosts.pop() if len(hosts) == 1 else self._own_host)
        known = journal.read_host(job.folder, job.host)
        for event in known:
            self._remember(event)
        lasting = [event for event in (*self._gpus.values(), *self._lost.values()) if event not in known]
        job.add((), [*known, *lasting])
        self._write_down(job, lasting)
        return job

    def _remember(self, event: Event) -> None:
        if event.name in _LOSSES:
            self._lost.setdefault(event.device, event)
        elif event.name == Happening.LINK_UP:
            self._lost.pop(event.device, None)
        elif event.name == Happening.GPU_SEEN:
            self._gpus[event.device] = event
            self._lost.pop(event.device, None)

    def _write_down(self, job: _Job, events: list[Event]) -> None:
        try:
            journal.append(job.folder, job.host, events)
        except OSError as error:
            if not self._complained:
                self._complained = True
                log(f"rankscope agent: cannot write events to the journal: {error}")

    def _run(self) -> None:
        while not self._stop.wait(TAKE_S):
            self.take_in()

    def _batches(self, rows: deque) -> Iterator[list]:  # type: ignore[type-arg]
        """The waiting rows in parts. Each part must be dropped before the next is taken."""
        while True:
            with self._lock:
                batch = list(islice(rows, BATCH_ROWS))
            if not batch:
                return
            yield batch

    def _drop(self, rows: deque, batch: list) -> None:  # type: ignore[type-arg]
        """Remove the rows of ``batch`` that are still at the front of ``rows``. Newer rows replaced the others."""
        with self._lock:
            sent = {id(row) for row in batch}
            while rows and id(rows[0]) in sent:
                rows.popleft()
