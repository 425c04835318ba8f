"""The agent's loop: read what ranks recorded, send it, and acknowledge it only after it is stored.

every second   find new ranks -> announce them
               -> rows of the samplers, which run in threads of their own (host_reports.py)
               -> evidence, which watch.py collects in a thread of its own
               -> records, until few are left -> acknowledge -> heartbeats
on a failure   nothing is acknowledged: wait longer after each failure, then read the same records again
at the end     the agent exits once every rank has ended and all its records are stored
"""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from telemetry.agent.back_off import BackOff
from telemetry.agent.host import FollowedRank, Host, Owner
from telemetry.agent.host_reports import HostReports, LivingRanks, Poster
from telemetry.agent.sampling import HostWatch, SamplerSettings, open_clock_ping, open_samplers
from telemetry.agent.stall import StallSettings
from telemetry.agent.sweep import KEEP_DAYS, sweep
from telemetry.agent.tail import Chunk, rank_rows
from telemetry.agent.watch import EvidenceWatch
from telemetry.errors import (
    AheadError,
    JumpError,
    RankscopeError,
    RefusedRowsError,
    UnreachableError,
    UnreadableError,
    UsageError,
)
from telemetry.evidence.evidence import evidence_rows
from telemetry.evidence.owned_process import heartbeat_rows
from telemetry.printable import log
from telemetry.settings import host_of
from telemetry.wire.client import CollectorClient
from telemetry.wire.codec import labelled

MAX_RECORDS = 100_000
"""Records of one round over all ranks: large inserts are cheap inserts."""
MAX_BATCHES = 20
"""Rounds before heartbeats get their turn."""
FEW_RECORDS = 5_000
"""A round that brought fewer is the last for this second: a store that is slow is not asked to take what little came
meanwhile, again and again, while all else waits."""
GLANCE_S = 0.25
TABLES_IN_ORDER = ("marks", "spans", "samples")
"""Marks first: a mark of lost records explains why the numbers of the other rows jump."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """What an agent follows, and whom it tells."""

    spool: Path
    collector: str
    token: str | None = None
    run_id: str | None = None
    """None: every run under the spool folder."""
    attempt: int | None = None
    interval_s: float = 1.0
    patience_s: float = 60.0
    """How long to wait for a collector that does not answer once every rank is over."""
    appear_s: float = 10.0
    """How long to wait for a first rank."""
    keep_days: float = KEEP_DAYS
    """How long rank files that are stored whole are kept; 0: for ever."""
    stall: StallSettings = field(default_factory=StallSettings)
    samplers: SamplerSettings = field(default_factory=SamplerSettings)


class Agent:
    """Follows the ranks of one host."""

    def __init__(
        self,
        host: Host,
        poster: Poster,
        settings: AgentSettings,
        watch: EvidenceWatch | None = None,
        reports: HostReports | None = None,
    ) -> None:
        self._host = host
        self._watch = watch
        self._reports = reports
        self._poster = poster
        self._settings = settings
        self._ahead: dict[Owner, AheadError] = {}
        """Runs with a rank that is not announced, because a clock is wrong."""
        self._left_out: set[tuple[Owner, str]] = set()
        """Runs and tables of which rows of the future were left out."""
        self._over_since_s: float | None = None

    def run(self, stop: threading.Event) -> None:
        """Until every rank is over and stored, or ``stop`` is set.

        Raises:
            UsageError: no rank appeared, or the collector refuses what is sent.
            RefusedRowsError: the collector refused a run, for instance because its name is taken; all else is stored.
            UnreachableError: the collector does not answer, and ``stop`` is set, or every rank is over and it has been
                so for too long; the files stay.
            AheadError: by the collector's clock a rank began in the future, and likewise.
            UnreadableError: a rank's files could not be read; all else is stored.
        """
        began = time.monotonic()
        back_off = BackOff()
        while True:
            stopping = stop.is_set()
            try:
                self.turn()
                back_off.succeeded()
                self._check_patience(next(iter(self._ahead.values()), None))
            except UnreachableError as error:
                self._forget_announcements()
                if stopping:
                    raise
                back_off.failed(error)
                self._check_patience(error)
            if stopping or self._finished(began):
                break
            self._rest(stop, max(self._settings.interval_s, back_off.seconds), may_wake=not back_off.seconds)
        self._tell_refused()

    def _check_patience(self, error: RankscopeError | None) -> None:
        """Raise ``error`` if every rank is over and an error has lasted for too long."""
        if error is None or not self._all_over():
            self._over_since_s = None
            return
        self._over_since_s = self._over_since_s or time.monotonic()
        if time.monotonic() - self._over_since_s > self._settings.patience_s:
            raise error

    def _rest(self, stop: threading.Event, seconds: float, *, may_wake: bool) -> None:
        """Until the next round is due; evidence of a stall does not wait for it, unless the collector is away."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0 and not stop.wait(min(GLANCE_S, left_s)):
            if may_wake and self._watch is not None and self._watch.queue.news.is_set():
                self._watch.queue.news.clear()
                return

    def turn(self) -> None:
        """One round: what was on the disk when it began is stored when this returns, of living ranks up to a limit."""
        self._host.find_ranks()
        refused = self._host.refused_runs
        if self._reports is not None:
            self._reports.follow([rank for rank in self._host.ranks.values() if rank.owner not in refused])
        # Who is over is noticed before the last look at the records, so none can come after it.
        beats = self._host.beats()
        self._announce()
        if self._reports is not None:  # before evidence: whoever judges it looks for a link that was lost
            self._reports.ship(self._poster, refused)
        self._ship_evidence()
        drained = self._ship_new(dry=any(rank.over and not rank.done for rank in self._host.ranks.values()))
        for (run_id, attempt), rows in beats.items():
            if (run_id, attempt) not in refused and (run_id, attempt) not in self._ahead:
                self._post("heartbeats", heartbeat_rows(rows), (run_id, attempt))
        self._host.finish(drained=drained)

    def _ship_evidence(self) -> None:
        if self._watch is None:
            return
        queue = self._watch.queue
        for (run_id, attempt), evidence in queue.batches():
            if (run_id, attempt) in self._ahead:
                continue
            if (run_id, attempt) not in self._host.refused_runs:
                self._post("evidence", evidence_rows(evidence), (run_id, attempt))
            queue.sent((run_id, attempt), evidence)

    def _announce(self) -> None:
        known, self._ahead = self._ahead, {}
        for owner, ranks in _by_owner(self._host.ranks.values(), self._is_unannounced).items():
            for rank in ranks:
                rank.tail.correct_clock(time.time_ns())
            try:
                stored = self._post("ranks", rank_rows([rank.tail.identity for rank in ranks]), owner)
            except AheadError as error:
                self._ahead[owner] = error
                if owner not in known:
                    log(f"rankscope agent: {error.message}. The agent retries until the clock is corrected")
                continue
            for rank in ranks:
                rank.announced = stored

    def _is_unannounced(self, rank: FollowedRank) -> bool:
        return not rank.announced and rank.owner not in self._host.refused_runs

    def _forget_announcements(self) -> None:
        """Another collector, or another store, may answer next time."""
        for rank in self._host.ranks.values():
            rank.announced = False

    def _ship_new(self, *, dry: bool) -> bool:
        """Ship until nothing is left; False where heartbeats have waited long enough, or, unless ``dry``, only a few
        records are left."""
        for _ in range(MAX_BATCHES):
            chunks = list(self._host.read(MAX_RECORDS))
            if not chunks:
                return True
            self._ship(chunks)
            if not dry and sum(chunk.num_records for _, chunk in chunks) < FEW_RECORDS:
                return False
        return False

    def _ship(self, chunks: list[tuple[FollowedRank, Chunk]]) -> None:
        for owner in _by_owner((rank for rank, _ in chunks), lambda _: True):
            own = [(rank, chunk) for rank, chunk in chunks if rank.owner == owner]
            if all(self._ship_table(table, own, owner) for table in TABLES_IN_ORDER):
                for rank, chunk in own:
                    rank.tail.shipped(chunk)

    def _ship_table(self, table: str, chunks: list[tuple[FollowedRank, Chunk]], owner: Owner) -> bool:
        """Whether the rows of ``table`` are stored. If not, the run is refused, or its hole is reported next time."""
        parts = [chunk.tables[table] for _, chunk in chunks if table in chunk.tables]
        if not parts:
            return True
        try:
            return self._post(table, pa.concat_tables(parts), owner)
        except JumpError as error:
            holes = [
                rank.tail.report_hole(error.stored[rank.tail.identity.rank])
                for rank, _ in chunks
                if rank.tail.identity.rank in error.stored
            ]
            if not any(holes):
                self._host.refuse(owner, error)
            return False

    def _post(self, table: str, rows: pa.Table, owner: Owner) -> bool:
        """Whether ``rows`` are stored; if not, the run is refused, or their stamps are.

        Raises:
            JumpError: the numbers of records jump too far.
            AheadError: a rank began in the future, by the collector's clock. Other rows of the future are left out.
        """
        try:
            self._poster.post(table, labelled(rows, *owner, self._host.openings(owner)))
        except JumpError:
            raise
        except AheadError as error:
            if table == "ranks":
                raise
            if (owner, table) not in self._left_out:
                self._left_out.add((owner, table))
                log(f"rankscope agent: {error.message}. Such rows are left out")
            return False
        except RefusedRowsError as error:
            self._host.refuse(owner, error)
            return False
        return True

    def _all_over(self) -> bool:
        return all(rank.over or rank.done for rank in self._host.ranks.values())

    def _all_told(self) -> bool:
        """Whether the evidence of how the ranks ended is taken and stored."""
        if self._watch is None:
            return True
        self._watch.last_check()
        return not len(self._watch.queue)

    def _finished(self, began: float) -> bool:
        if self._host.ranks:
            return all(rank.done for rank in self._host.ranks.values()) and self._all_told()
        if time.monotonic() - began < self._settings.appear_s:
            return False
        raise UsageError(
            f"no rank file under {self._settings.spool}",
            hint="check the folder: ranks write to telemetry.start(spool=...) or RANKSCOPE_SPOOL",
        )

    def _tell_refused(self) -> None:
        for error in [*self._host.refused_runs.values(), *self._ahead.values()]:
            raise error
        if refused := self._host.refused:
            raise UnreadableError(
                f"could not read {', '.join(map(str, refused))}", hint="everything else is stored; these files are kept"
            )


def _by_owner(ranks: Iterable[FollowedRank], wanted: Callable[[FollowedRank], bool]) -> dict[Owner, list[FollowedRank]]:
    groups: dict[Owner, list[FollowedRank]] = {}
    for rank in ranks:
        if wanted(rank):
            groups.setdefault(rank.owner, []).append(rank)
    return groups


def run_agent(settings: AgentSettings, stop: threading.Event | None = None) -> None:
    """Follow the ranks of this host until they are over and stored, or ``stop`` is set.

    Raises:
        UsageError, UnreachableError, UnreadableError: as :meth:`Agent.run`.
    """
    host = Host(settings.spool, settings.run_id, settings.attempt)
    watch = EvidenceWatch(
        settings.spool, settings.run_id, settings.attempt, settings=settings.stall, interval_s=settings.interval_s
    )
    if settings.keep_days:
        sweep(settings.spool, keep_days=settings.keep_days)
    living = LivingRanks()
    looks = open_samplers(settings.samplers, ranks=living.pids)
    if settings.samplers.interval_s:
        looks.append(open_clock_ping(settings.collector, settings.token))
    samplers = HostWatch(looks)
    reports = HostReports(samplers, living, own_host=host_of())
    watch.start()
    samplers.start()
    reports.start()
    try:
        with CollectorClient(settings.collector, settings.token) as client:
            try:
                Agent(host, client, settings, watch, reports).run(stop or threading.Event())
            finally:
                samplers.stop()
                reports.stop()
                reports.ship_the_last(client, host.refused_runs)
    finally:
        samplers.stop()
        reports.stop()
        watch.close()
