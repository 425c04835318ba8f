"""Detects a stalled job or a dead rank, and collects evidence: first on disk, then for shipping.

every second, or when a process ends     pages -> logs -> ends -> stall? -> evidence, if there is a reason

It runs in a separate thread. So a collector that does not answer does not delay evidence, and a rank that does not
answer does not delay heartbeats. In normal operation it reads the state page of each rank and checks the length of its
log.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec

from telemetry.agent.host import Owner
from telemetry.agent.settings import StallSettings
from telemetry.agent.stall import SECOND_NS, Phase, RankSample, StallDetector
from telemetry.agent.watched_job import (
    DeathWatch,
    EvidenceQueue,
    WatchedJob,
    WatchedRank,
)
from telemetry.errors import UnreadableError
from telemetry.evidence.collect import Standing, take_flight_files, take_in_time
from telemetry.evidence.evidence import Evidence, discard_other_steps, keep, kept, kept_state
from telemetry.evidence.rank_state import belongs_to, check_owner, live_state
from telemetry.evidence.usual import RecentOperations
from telemetry.printable import log
from telemetry.process.pid_namespace import pid_of
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.records import LOG_OFFSETS

Clock = Callable[[], int]
P = ParamSpec("P")


class EvidenceWatch:
    """Follows the ranks under a spool folder. ``queue`` holds what is to be shipped."""

    def __init__(
        self,
        spool: Path,
        run_id: str | None = None,
        attempt: int | None = None,
        *,
        settings: StallSettings | None = None,
        interval_s: float = 1.0,
        clock: Clock = time.monotonic_ns,
    ) -> None:
        self._place = spool, run_id, attempt
        self._settings = settings or StallSettings()
        self._interval_s = interval_s
        self._clock = clock
        self._jobs: dict[Owner, WatchedJob] = {}
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._deaths = DeathWatch(self._wake.set)
        self._thread = threading.Thread(target=self._run, name="rankscope-watch", daemon=True)
        self._complained = False
        self.queue = EvidenceQueue()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the threads. Waits for a running collection of evidence, for a bounded time. Safe to repeat."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self._deaths.close()

    def close(self) -> None:
        """End as :meth:`stop` does, and close the logs."""
        self.stop()
        for job in self._jobs.values():
            job.logs.close()

    def last_check(self) -> None:
        """Call once every rank is over. Checks whether evidence of their ends is missing."""
        if not self._stop.is_set():
            self.stop()
            self.check()

    def check(self) -> None:
        """Check every rank once. Never raises: a fault of one rank or job does not affect others."""
        self._guarded(self._find)
        for owner, job in self._jobs.items():
            for rank in job.ranks.values():
                self._guarded(self._update, job, rank)
            self._guarded(job.logs.read_on)
            self._guarded(self._judge, owner, job)
            self._guarded(job.leave_logs)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.check()
            self._wake.wait(self._interval_s)
            self._wake.clear()

    def _guarded(self, work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            work(*args, **kwargs)
        except UnreadableError:
            pass  # the files do not exist yet, or no longer
        except Exception as error:
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        """Log the first failure. Records are shipped regardless."""
        if not self._complained:
            self._complained = True
            log(f"rankscope agent: collecting evidence failed: {error!r}")

    def _find(self) -> None:
        for folder in find_rank_dirs(*self._place):
            owner = folder.parent.parent.name, int(folder.parent.name)
            job = self._jobs.get(owner)
            if job is None or folder not in job.ranks:
                self._guarded(self._take_up, owner, folder)

    def _take_up(self, owner: Owner, folder: Path) -> None:
        reader = RankReader(folder)
        identity = reader.identity()
        check_owner(identity)
        state, process = live_state(reader, identity)
        job = self._jobs.setdefault(owner, WatchedJob(StallDetector(self._settings)))
        before = kept(folder, identity.rank)
        earlier = kept_state(before)
        is_reported = process == "ended" or (process == "dead" and bool(before))
        rank = WatchedRank(
            reader=reader,
            operations=RecentOperations(reader),
            identity=identity,
            state=state,
            process=process,
            is_reported=is_reported,
        )
        rank.living, rank.died_ns, rank.ended_by = earlier.living, earlier.died_ns, earlier.ended_by
        if not rank.over:
            self._follow(job, rank)
            if earlier.step == state.step:
                job.taken_step = max(state.step, job.taken_step or 0)
        job.ranks[folder] = rank
        rank.operations.read_on()
        job.detector.learn(rank.operations.steps_ns())
        self.queue.put(owner, before)  # an agent before this one may not have shipped it

    def _follow(self, job: WatchedJob, rank: WatchedRank) -> None:
        """Watch the process of a rank from now on: record its end, and read its logs."""
        identity = rank.identity
        rank.stamped, rank.pid = False, pid_of(identity)
        with suppress(OSError):
            rank.stamped = belongs_to(rank.pid, identity.uid) and self._deaths.follow(rank.pid)
        job.logs.follow(identity.rank, rank.pid, identity.meta.get(LOG_OFFSETS, ""), identity.uid)

    def _update(self, job: WatchedJob, rank: WatchedRank) -> None:
        self._note_death(rank)
        if rank.over and rank.is_reported and not self._began_again(rank):
            return
        lived = not rank.over
        rank.operations.read_on()
        if not job.detector.has_samples:  # steps may have gone by since the rank was taken up
            job.detector.learn(rank.operations.steps_ns())
        with suppress(UnreadableError):
            if rank.reader.live().pid != rank.identity.pid and not self._follow_new_process(job, rank):
                return
            rank.state, rank.process = live_state(rank.reader, rank.identity)
            if rank.state.identity_ns > rank.identity.started_ns:
                rank.identity = rank.reader.identity()
            if not rank.over:
                rank.living = rank.process
        if lived and rank.process == "dead" and not rank.stamped:
            rank.died_ns = time.time_ns()
        self._note_death(rank)

    def _note_death(self, rank: WatchedRank) -> None:
        """Set the time of death. It may become known after the check that found that the process has ended."""
        died_ns = self._deaths.died_ns(rank.pid)
        if died_ns and died_ns != rank.died_ns:
            rank.died_ns, rank.stamp_is_late = died_ns, rank.is_reported
            rank.ended_by = self._deaths.ended_by(rank.pid)

    def _follow_new_process(self, job: WatchedJob, rank: WatchedRank) -> bool:
        """Follow the process that now writes the page. Returns False if it has not written its identity yet."""
        identity = rank.reader.identity()
        if identity.pid == rank.identity.pid:
            return False
        check_owner(identity)  # again: the file may now name another process
        rank.identity, rank.died_ns, rank.ended_by = identity, 0, ""
        rank.is_reported = rank.stamp_is_late = False
        self._follow(job, rank)
        return True

    def _began_again(self, rank: WatchedRank) -> bool:
        with suppress(UnreadableError):
            return rank.reader.live().pid != rank.identity.pid
        return False

    def _judge(self, owner: Owner, job: WatchedJob) -> None:
        """Collect evidence if the job is stalled or a rank has failed."""
        living = {rank.identity.rank: RankSample.of(rank.state) for rank in job.ranks.values() if not rank.over}
        step = max((rank.state.step for rank in job.ranks.values()), default=-1)
        new_ends = [rank for rank in job.ranks.values() if rank.over and not rank.is_reported]
        for rank in new_ends:
            rank.is_reported = True
        failed = any(job.failed(rank) for rank in new_ends)
        if job.step not in (None, step) and not failed:
            job.logs.step_went_by()
        job.step = step
        # When a stall is ended, pages lose information with each rank that unwinds: keep earlier evidence.
        job.taken_step = step if job.taken_step == step else None
        if self._stall_is_due(job, living) or (failed and job.taken_step is None):
            # Evidence of all ranks of the job: stalled ranks show which ranks they wait for.
            ranks = [job.standing(rank) for rank in job.ranks.values()]
            self._keep(owner, ranks, [item for standing in ranks for item in standing.at_once()])
            self._keep(owner, ranks, take_in_time(ranks))
        elif failed:
            # A collective has timed out: torch wrote its flight recorder, and then ended the process.
            ranks = [job.standing(rank) for rank in job.ranks.values() if rank.over]
            self._keep(owner, ranks, take_flight_files(ranks))
        self._keep_late_stamps(owner, job)

    def _stall_is_due(self, job: WatchedJob, living: dict[int, RankSample]) -> bool:
        """Whether evidence of a stall must be taken, for the first time or again."""
        now = self._clock()
        if job.detector.update(now, living) is not Phase.STALLED:
            job.taken_ns = 0
            return False
        num_over = sum(rank.over for rank in job.ranks.values())
        again = now - job.taken_ns >= self._settings.refresh_s * SECOND_NS and num_over <= job.taken_over
        if job.taken_ns and not again:
            return False
        job.taken_ns, job.taken_step, job.taken_over = now, job.step, num_over
        return True

    def _keep_late_stamps(self, owner: Owner, job: WatchedJob) -> None:
        """Write the states of ended ranks again with new stamps. No rank is queried again."""
        late = [rank for rank in job.ranks.values() if rank.stamp_is_late]
        for rank in late:
            rank.stamp_is_late = False
        if job.taken_step is None:
            ranks = [job.standing(rank) for rank in late if job.failed(rank)]
            self._keep(owner, ranks, [item for standing in ranks for item in standing.at_once()])

    def _keep(self, owner: Owner, ranks: list[Standing], evidence: list[Evidence]) -> None:
        """Write to disk first, in case the collector is gone, too. Then ship all ranks together, so that no verdict
        uses the new state of some ranks and the old state of others."""
        news: list[Evidence] = []
        for rank in ranks:
            own = [item for item in evidence if item.rank == rank.identity.rank]
            if not own:
                continue
            gone = discard_other_steps(rank.folder, rank.identity.rank, rank.state.step)
            kinds = {item.kind for item in own}
            try:
                keep(rank.folder, own)
            except OSError as error:
                self._complain(error)
            news += [*(item for item in gone if item.kind not in kinds), *own]
        if news:
            self.queue.put(owner, news)
