"""Hands requests for profiles to the ranks of this host, and ships what the ranks write.

    collector --answer to heartbeats--> the agent's loop --take--> this thread --profile/request--> rank
                                                                       |  <----profile/outcome-----'
    states, parts of the trace  <---------------post-------------------'  removes the files once all is stored

It runs in a separate thread, so a large trace delays no heartbeat. The request stays in the rank's folder until the
result is stored: an agent that starts later finds it there and continues. A part that is sent again has the same
content.
"""

import base64
import hashlib
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from telemetry.agent.host import FollowedRank, Owner
from telemetry.agent.host_reports import Poster
from telemetry.errors import RankscopeError, UnreachableError
from telemetry.evidence.rank_state import is_alive
from telemetry.printable import log, one_line
from telemetry.profile_file import about_file, compressed_parts
from telemetry.profiles import OUTCOME, REQUEST, SUPPORTED, TRACE, Phase, ProfileOutcome, ProfileRequest
from telemetry.record.profile_files import (
    failed,
    final_outcome,
    open_trace,
    place_request,
    read_outcome,
    read_request,
    remove_profile,
)
from telemetry.records import RankIdentity
from telemetry.tables import PROFILE_PARTS, PROFILE_STATES
from telemetry.wire.codec import labelled

INTERVAL_S = 0.5
MAX_WAIT_S = 10.0
"""Longest pause after failures of the collector."""


@dataclass(slots=True, kw_only=True)
class _Job:
    """One request to one rank."""

    folder: Path
    identity: RankIdentity
    request: ProfileRequest
    is_placed: bool = False
    reported: Phase = Phase.REQUESTED
    """The last state that is stored."""
    parts_sent: int = 0


class ProfileCourier:
    """The agent's loop calls ``follow`` and ``take``. A thread from ``start`` to ``stop`` does the rest."""

    def __init__(self, poster: Poster, *, interval_s: float = INTERVAL_S) -> None:
        self._poster = poster
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._jobs: dict[tuple[str, int], _Job] = {}
        self._ranks: dict[tuple[Owner, int], FollowedRank] = {}
        self._known: set[Path] = set()
        self._seen: set[tuple[str, int]] = set()
        self._failures = 0
        self.error: UnreachableError | None = None
        """Why the last attempt could not store anything; None if it could."""
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="rankscope-profiles", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread. The files of unfinished profiles stay in the rank's folder. Safe to repeat."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def is_idle(self) -> bool:
        """Whether no profile is unfinished."""
        with self._lock:
            return not self._jobs

    def follow(self, ranks: Iterable[tuple[Path, FollowedRank]]) -> None:
        """Set the current ranks. Requests that an earlier agent has placed are continued."""
        for folder, rank in ranks:
            identity = rank.tail.identity
            self._ranks[rank.owner, identity.rank] = rank
            if folder in self._known:
                continue
            self._known.add(folder)
            with suppress(OSError, ValueError):
                request = read_request(folder)
                if not request.local and request.rank == identity.rank:
                    self._add(_Job(folder=folder, identity=identity, request=request, is_placed=True))

    def take(self, owner: Owner, requests: Iterable[ProfileRequest]) -> None:
        """Accept requests of the collector. It repeats them until they are answered, so known requests are ignored."""
        for request in requests:
            rank = self._ranks.get((owner, request.rank))
            if rank is not None:
                self._add(_Job(folder=rank.tail.reader.folder, identity=rank.tail.identity, request=request))

    def _add(self, job: _Job) -> None:
        key = job.request.profile_id, job.request.rank
        with self._lock:
            if key in self._seen:
                return
            self._seen.add(key)
            self._jobs[key] = job
        self._wake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                jobs = dict(self._jobs)
            for key, job in jobs.items():
                if not self._stop.is_set() and self._advanced(job):
                    with self._lock:
                        del self._jobs[key]
            self._wake.wait(min(MAX_WAIT_S, 2**self._failures * self._interval_s) if jobs else None)
            self._wake.clear()

    def _advanced(self, job: _Job) -> bool:
        """Continue a request. Returns whether the request is finished, with a result or a failure."""
        try:
            is_over = self._advance(job)
            self._failures, self.error = 0, None
        except UnreachableError as error:
            self.error = error
            self._failures = min(self._failures + 1, 6)
            return False
        except RankscopeError as error:  # refused: an old collector, or a run that is refused
            log(f"rankscope agent: the profile of rank {job.request.rank} is not stored: {error.message}")
            is_over = True
        except Exception as error:
            log(f"rankscope agent: the profile of rank {job.request.rank} failed: {error!r}")
            is_over = self._give_up(job, failed(job.request, one_line(repr(error), 200)))
        if is_over and job.is_placed:  # otherwise the files belong to another request
            remove_profile(job.folder, REQUEST, OUTCOME, TRACE)
        return is_over

    def _give_up(self, job: _Job, outcome: ProfileOutcome) -> bool:
        """Report a failure. Returns False if the collector does not answer, so the report must be repeated."""
        try:
            self._report(job, Phase.FAILED, outcome)
        except UnreachableError:
            return False
        except RankscopeError:
            pass
        return True

    def _advance(self, job: _Job) -> bool:
        if not job.is_placed and (reason := self._place(job)):
            self._report(job, Phase.FAILED, failed(job.request, reason))
            return True
        if job.reported is Phase.REQUESTED:
            self._report(job, Phase.TAKEN)
        is_living = is_alive(job.identity, job.folder)
        outcome = final_outcome(job.folder, job.request)
        if outcome is None and not is_living:
            outcome = failed(job.request, "the rank ended before its profile was complete")
        if outcome is None:
            self._report_running(job)
            return False
        if outcome.phase == Phase.FAILED:
            self._report(job, Phase.FAILED, outcome)
        else:
            self._ship(job, outcome)
        return True

    def _place(self, job: _Job) -> str:
        """Hand the request to its rank. Returns the reason if that is not possible, otherwise an empty text."""
        if SUPPORTED not in job.identity.meta:
            return "the rank runs a version of rankscope without profiles"
        written = place_request(job.folder, job.request)
        if written is None:
            written = read_request(job.folder)
            if (written.profile_id, written.local) != (job.request.profile_id, False):
                return "another profile of this rank is running"
        job.request, job.is_placed = written, True
        return ""

    def _report_running(self, job: _Job) -> None:
        if job.reported is Phase.RUNNING:
            return
        running = read_outcome(job.folder, job.request.profile_id)
        if running is not None:
            self._report(job, Phase.RUNNING, running)

    def _ship(self, job: _Job, outcome: ProfileOutcome) -> None:
        """Send the trace in parts, then report that it is stored."""
        digest, num_parts = hashlib.sha256(), 0
        identity = job.identity
        about = about_file(identity.run_id, identity.attempt, identity.rank, outcome)
        with open_trace(job.folder) as trace:
            for part in compressed_parts(trace, offset_ns=outcome.clock_offset_ns, about=about):
                if self._stop.is_set():
                    raise UnreachableError("the agent ends", hint="a later agent continues")
                digest.update(part)
                if num_parts >= job.parts_sent:
                    content = base64.b64encode(part).decode()
                    row = {
                        "rank": identity.rank,
                        "profile_id": outcome.profile_id,
                        "part": num_parts,
                        "content": content,
                    }
                    self._post(job, "profile_parts", pa.Table.from_pylist([row], schema=PROFILE_PARTS))
                    job.parts_sent = num_parts + 1
                num_parts += 1
        stored = replace(outcome, phase=Phase.STORED, parts=num_parts, sha256=digest.hexdigest())
        self._report(job, Phase.STORED, stored)

    def _report(self, job: _Job, phase: Phase, outcome: ProfileOutcome | None = None) -> None:
        row = {
            "rank": job.request.rank,
            "profile_id": job.request.profile_id,
            "at_ns": time.time_ns(),
            "phase": phase,
            "body": outcome.to_json() if outcome else "",
        }
        self._post(job, "profile_states", pa.Table.from_pylist([row], schema=PROFILE_STATES))
        job.reported = phase

    def _post(self, job: _Job, table: str, rows: pa.Table) -> None:
        identity = job.identity
        openings = {identity.rank: identity.folder_opened_ns}
        self._poster.post(table, labelled(rows, identity.run_id, identity.attempt, openings))
