"""What this host's samplers saw, for every job that has ranks here: on disk first, then shipped.

Nobody else tells whose a host is: each run and attempt that has living ranks here gets the rows. A collector that is
away for long costs the oldest samples; events are in the journal all the same.
"""

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from telemetry.agent import journal
from telemetry.agent.host import FollowedRank, Owner
from telemetry.agent.host_watch import HostWatch
from telemetry.agent.thinning import HostSample
from telemetry.samplers.interface import Event
from telemetry.ship.wire import Ack, labelled
from telemetry.tables import HOST_SAMPLES

MAX_SAMPLES = 200_000
MAX_EVENTS = 20_000
BATCH_ROWS = 20_000


class Poster(Protocol):
    """Where rows go: see ``telemetry.agent.loop``."""

    def post(self, table: str, rows: pa.Table) -> Ack: ...


@dataclass(slots=True)
class _Job:
    """Of one attempt with ranks here: what is still to be shipped."""

    folder: Path
    host: str
    samples: deque[HostSample] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))


class LivingRanks:
    """Which processes train here now. One thread sets them, others read."""

    def __init__(self) -> None:
        self._pids: Mapping[int, int] = {}

    def pids(self) -> Mapping[int, int]:
        """Rank -> pid."""
        return self._pids

    def become(self, pids: Mapping[int, int]) -> None:
        """Replaced, never changed: whoever reads them holds them whole."""
        self._pids = pids


class HostReports:
    """For one thread, the agent's loop."""

    def __init__(self, watch: HostWatch, living: LivingRanks, *, own_host: str) -> None:
        self._watch = watch
        self._living = living
        self._own_host = own_host
        self._jobs: dict[Owner, _Job] = {}
        self._complained = False

    def take_in(self, ranks: Iterable[FollowedRank]) -> None:
        """What was seen since the last time, for the jobs of ``ranks``: events are on the disk when this returns."""
        living = [rank for rank in ranks if not rank.done]
        self._living.become({rank.tail.identity.rank: rank.tail.identity.pid for rank in living if not rank.over})
        self._follow(living)
        samples, events = self._watch.take()
        for job in self._jobs.values():
            job.samples.extend(samples)
            job.events.extend(events)
            try:
                journal.append(job.folder, job.host, events)
            except OSError as error:
                self._complain(error)

    def ship(self, poster: Poster) -> None:
        """Post all that waits.

        Raises:
            UnreachableError: later, perhaps: it waits on.
        """
        for owner, job in self._jobs.items():
            for batch in _batches(job.events):
                poster.post("host_events", labelled(journal.event_rows(job.host, batch), *owner))
                _drop(job.events, len(batch))
            for samples in _batches(job.samples):
                poster.post("host_samples", labelled(_sample_rows(job.host, samples), *owner))
                _drop(job.samples, len(samples))

    def _follow(self, living: list[FollowedRank]) -> None:
        """Jobs that have ranks here now; of a new one the journal says what an agent before this one saw."""
        owners = {rank.owner for rank in living}
        self._jobs = {owner: job for owner, job in self._jobs.items() if owner in owners}
        for rank in living:
            if rank.owner not in self._jobs:
                folder = rank.tail.reader.folder.parent
                hosts = {one.tail.identity.host for one in living if one.owner == rank.owner}
                job = _Job(folder=folder, host=hosts.pop() if len(hosts) == 1 else self._own_host)
                job.events.extend(dict(journal.read(folder)).get(job.host, ()))
                self._jobs[rank.owner] = job

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            print(f"rankscope agent: cannot write events down: {error}", file=sys.stderr, flush=True)


def _batches(rows: deque) -> Iterator[list]:  # type: ignore[type-arg]
    while rows:
        yield list(islice(rows, BATCH_ROWS))


def _drop(rows: deque, count: int) -> None:  # type: ignore[type-arg]
    for _ in range(count):
        rows.popleft()


def _sample_rows(host: str, samples: list[HostSample]) -> pa.Table:
    rows = [
        {"host": host, "device": one.device, "metric": one.metric, "at_ns": one.at_ns, "value": one.value}
        for one in samples
    ]
    return pa.Table.from_pylist(rows, schema=HOST_SAMPLES)
