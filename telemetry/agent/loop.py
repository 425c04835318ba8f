"""The agent's loop: read what ranks recorded, send it, and acknowledge it only after it is stored.

every round    find new ranks -> announce them
               -> rows of the samplers, which run in threads of their own (host_reports.py)
               -> evidence, which watch.py collects in a separate thread
               -> heartbeats of living ranks: after an outage the run is live at once, not after the backlog
               -> records, until few are left -> acknowledge -> heartbeats of ranks that have ended
               -> requests for profiles, which came with the answer; profiles.py handles them in a separate thread
on a failure   nothing is acknowledged: wait longer after each failure, then read the same records again
at the end     the agent exits once every rank has ended and all its records are stored

failures in a row      1       2       3       4       5 ...
seconds                0.5     1       2       4       8, 10, 10 ...    or Retry-After, if that is longer
random factor          1 to 2, so that thousands of agents do not retry at the same moment
"""

import random
import threading
import time
from contextlib import suppress
from typing import Any

from telemetry.agent.host import Host, Owner, sweep
from telemetry.agent.host_reports import HostReports, LivingRanks, Poster
from telemetry.agent.profiles import ProfileCourier
from telemetry.agent.sampling import HostWatch, open_clock_ping, open_samplers
from telemetry.agent.settings import AgentSettings
from telemetry.agent.shipping import Shipper
from telemetry.agent.watch import EvidenceWatch
from telemetry.errors import RankscopeError, UnreachableError, UnreadableError, UsageError
from telemetry.evidence.evidence import evidence_rows
from telemetry.evidence.rank_state import heartbeat_rows
from telemetry.settings import host_of
from telemetry.wire.client import CollectorClient

FIRST_S = 0.5
MAX_S = 10.0
MAX_RETRY_AFTER_S = 120.0
"""Upper limit for Retry-After, e.g. from a proxy."""


class BackOff:
    """Seconds to wait before the next attempt; 0 after a success."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random()
        self._usual_s = 0.0
        self.seconds = 0.0

    def failed(self, error: UnreachableError) -> None:
        """Wait longer than the last time, and at least as long as ``error`` requires."""
        self._usual_s = min(max(2 * self._usual_s, FIRST_S), MAX_S)
        required_s = min(error.retry_after_s or 0.0, MAX_RETRY_AFTER_S)
        self.seconds = max(self._usual_s, required_s) * self._chance.uniform(1, 2)

    def succeeded(self) -> None:
        self._usual_s = self.seconds = 0.0


ROUNDS_PER_S = 200.0
"""Rounds of all agents of a job together. A round is about four requests."""
MAX_PAUSE_S = 10.0
"""A run without data for 20 s counts as not shipping."""
SPREAD = 0.2
"""Random part of the pause of a large job, so that agents that started together do not send together."""


def pause_s(interval_s: float, num_hosts: int, chance: random.Random) -> float:
    """The pause between two rounds of an agent. Agents of jobs with hundreds of hosts pause for longer than
    ``interval_s``, so that a collector gets larger batches instead of more requests."""
    shared_s = min(num_hosts / ROUNDS_PER_S, MAX_PAUSE_S)
    return interval_s if shared_s <= interval_s else shared_s * chance.uniform(1 - SPREAD, 1)


POLL_S = 0.25
LAST_ROUNDS_S = 1.0
"""Time of the last rounds after ``stop`` is set. Ranks that end at the same moment as the agent are then reported."""


class Agent:
    """Follows the ranks of one host."""

    def __init__(
        self,
        host: Host,
        poster: Poster,
        settings: AgentSettings,
        watch: EvidenceWatch | None = None,
        reports: HostReports | None = None,
        courier: ProfileCourier | None = None,
    ) -> None:
        self._host = host
        self._watch = watch
        self._reports = reports
        self._courier = courier
        self._poster = poster
        self._settings = settings
        self._shipper = Shipper(host, poster)
        self._chance = random.Random()
        self._over_since_s: float | None = None

    def run(self, stop: threading.Event) -> None:
        """Run until every rank has ended and is stored, or ``stop`` is set. Ranks that end within a second of ``stop``
        are still reported.

        Raises:
            UsageError: no rank appeared, or the collector refuses what is sent.
            RefusedRowsError: the collector refused a run, e.g. because its name is taken; all else is stored.
            UnreachableError: the collector does not answer, and ``stop`` is set, or every rank has been over for
                longer than ``patience_s``; the files are kept.
            AheadError: a rank began in the future of the collector's clock, and ``stop`` is set, or every rank has been
                over for longer than ``patience_s``.
            UnreadableError: a rank's files could not be read; everything else is stored.
        """
        began = time.monotonic()
        back_off = BackOff()
        stop_s: float | None = None
        while True:
            if stop.is_set() and stop_s is None:
                stop_s = time.monotonic() + LAST_ROUNDS_S
            try:
                self.turn()
                back_off.succeeded()
                self._check_patience(self._waits_for())
            except UnreachableError as error:
                if stop_s is not None:
                    raise
                back_off.failed(error)
                self._check_patience(error)
            if stop_s is not None:
                if self._are_over or time.monotonic() >= stop_s:
                    break
                time.sleep(POLL_S)
                continue
            if self._finished(began):
                break
            pause = pause_s(self._settings.interval_s, self._host.num_hosts, self._chance)
            self._rest(stop, max(pause, back_off.seconds), may_wake=not back_off.seconds)
        self._raise_refusals()

    def _waits_for(self) -> RankscopeError | None:
        """Why something is not stored yet, although the collector answers; None if everything is stored."""
        profile_error = self._courier.error if self._courier is not None else None
        return next(iter(self._shipper.ahead.values()), profile_error)

    def _raise_refusals(self) -> None:
        """Raise the first refusal of a run or a file, if there is one."""
        for refusal in [*self._host.refused_runs.values(), *self._shipper.ahead.values()]:
            raise refusal
        if refused := self._host.refused:
            raise UnreadableError(
                f"could not read {', '.join(map(str, refused))}", hint="everything else is stored; these files are kept"
            )

    @property
    def _are_over(self) -> bool:
        return all(rank.over or rank.done for rank in self._host.ranks.values())

    def _check_patience(self, error: RankscopeError | None) -> None:
        """Raise ``error`` if every rank is over and an error has lasted for too long."""
        if error is None or not self._are_over:
            self._over_since_s = None
            return
        self._over_since_s = self._over_since_s or time.monotonic()
        if time.monotonic() - self._over_since_s > self._settings.patience_s:
            raise error

    def _rest(self, stop: threading.Event, seconds: float, *, may_wake: bool) -> None:
        """Wait for the next round. With ``may_wake``, new evidence ends the wait."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0 and not stop.wait(min(POLL_S, left_s)):
            if may_wake and self._watch is not None and self._watch.queue.news.is_set():
                self._watch.queue.news.clear()
                return

    def turn(self) -> None:
        """One round: store the records that were on disk when it began, up to ``MAX_BATCHES`` batches.

        Raises:
            UnreachableError: the collector does not answer. The next round announces all ranks again.
        """
        try:
            self._turn()
        except UnreachableError:
            self._shipper.forget_announcements()
            raise

    def _turn(self) -> None:
        self._host.find_ranks()
        refused = self._host.refused_runs
        if self._reports is not None:
            self._reports.follow([rank for rank in self._host.ranks.values() if rank.owner not in refused])
        # Ends are detected before records are read, so no record can follow the last read.
        beats = self._host.beats()
        self._shipper.announce()
        if self._reports is not None:  # before evidence: its diagnosis needs the lost links
            self._reports.ship(self._poster, refused)
        self._ship_evidence()
        self._ship_beats(beats, of_ended=False)
        drained = self._shipper.ship_records(dry=any(rank.over and not rank.done for rank in self._host.ranks.values()))
        # The end of a rank is reported after its records of this round, which usually are all.
        self._ship_beats(beats, of_ended=True)
        self._hand_over_profiles()
        self._host.finish(drained=drained)

    def _ship_beats(self, beats: dict[Owner, list[dict[str, Any]]], *, of_ended: bool) -> None:
        """Post the heartbeats of ranks that have ended, or of the others."""
        for owner, rows in beats.items():
            chosen = [row for row in rows if (row["ended"] > 0 or not row["alive"]) is of_ended]
            if chosen and owner not in self._host.refused_runs and owner not in self._shipper.ahead:
                self._shipper.post("heartbeats", heartbeat_rows(chosen), owner)

    def _hand_over_profiles(self) -> None:
        requests, self._shipper.profiles = self._shipper.profiles, []
        if self._courier is not None:
            refused = self._host.refused_runs
            self._courier.follow(item for item in self._host.ranks.items() if item[1].owner not in refused)
            for owner, request in requests:
                self._courier.take(owner, [request])

    def _ship_evidence(self) -> None:
        if self._watch is None:
            return
        for owner, evidence in self._watch.queue.batches():
            if owner in self._shipper.ahead:
                continue
            if owner not in self._host.refused_runs:
                self._shipper.post("evidence", evidence_rows(evidence), owner)
            self._watch.queue.sent(owner, evidence)

    def _finished(self, began: float) -> bool:
        if self._host.ranks:
            if not all(rank.done for rank in self._host.ranks.values()):
                return False
            if self._courier is not None and not self._courier.is_idle:
                return False
            if self._watch is None:
                return True
            self._watch.last_check()
            return not len(self._watch.queue)  # the evidence of how the ranks ended is stored
        if time.monotonic() - began < self._settings.appear_s:
            return False
        of_run = f" of run {self._settings.run_id}" if self._settings.run_id else ""
        raise UsageError(
            f"no rank file{of_run} under {self._settings.spool}",
            hint="check the folder: ranks write to rankscope.start(spool=...) or RANKSCOPE_SPOOL",
        )


def run_agent(settings: AgentSettings, stop: threading.Event | None = None) -> None:
    """Follow the ranks of this host until they have ended and are stored, or ``stop`` is set.

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
    opened = open_samplers(settings.samplers, ranks=living.pids)
    if settings.samplers.interval_s:
        opened.append(open_clock_ping(settings.collector, settings.token))
    samplers = HostWatch(opened)
    reports = HostReports(samplers, living, own_host=host_of())
    watch.start()
    samplers.start()
    reports.start()
    try:
        with CollectorClient(settings.collector, settings.token) as client:
            courier = ProfileCourier(client)
            courier.start()
            try:
                Agent(host, client, settings, watch, reports, courier).run(stop or threading.Event())
            finally:
                courier.stop()
                samplers.stop()
                reports.stop()
                with suppress(
                    RankscopeError
                ):  # without an answer, some seconds of samples are lost; events are on disk
                    reports.ship(client, host.refused_runs)
    finally:
        samplers.stop()
        reports.stop()
        watch.close()
