"""The ranks of this host that the agent follows. A fault of one rank does not stop the others."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from telemetry.agent.settings import KEEP_DAYS
from telemetry.agent.tail import Chunk, RankTail
from telemetry.errors import RefusedRowsError, UnreadableError
from telemetry.evidence.journal import FOLDER as HOSTS
from telemetry.evidence.rank_state import check_owner, heartbeat, is_alive
from telemetry.files.private_files import open_folder
from telemetry.printable import log
from telemetry.process.parent_death import BORN, is_of_this_boot
from telemetry.record.clocks.host import Anchor, measure_anchor
from telemetry.record.layout import AGENT_LOG_NAME
from telemetry.record.reader import find_rank_dirs
from telemetry.record.state_page import LiveState
from telemetry.records import RankIdentity

DAY_NS = 86_400 * 10**9


def sweep(spool: Path, *, keep_days: float = KEEP_DAYS, now: Anchor | None = None) -> list[Path]:
    """Delete the folders of ranks that are stored whole and silent for ``keep_days``; which. Raises nothing: what
    cannot be read, or deleted, stays.

    Args:
        now: None: this moment.
    """
    now = now or measure_anchor()
    gone: list[Path] = []
    for folder in find_rank_dirs(spool):
        with suppress(UnreadableError, OSError, ValueError, OverflowError):
            if _is_stored(folder, now, keep_days * DAY_NS):
                _remove(folder)
                gone.append(folder)
    return gone


def _is_stored(folder: Path, now: Anchor, silent_ns: float) -> bool:
    """Whole, and its rank was over and silent for longer than that."""
    tail = RankTail(folder, from_seq=0)
    identity, reader = tail.identity, tail.reader  # a folder of that name, and nothing else's
    state, acked = reader.live(), reader.acked()
    over = state.ended or not is_alive(identity)
    return over and _silent_ns(identity, state, now) > silent_ns and 0 < acked == reader.end_seq(acked)


def _silent_ns(identity: RankIdentity, state: LiveState, now: Anchor) -> int:
    if is_of_this_boot(identity.meta.get(BORN, "")):
        return now.monotonic_ns - state.beat_ns
    return now.wall_ns - state.anchor.to_wall_ns(state.beat_ns)


def _remove(rank_folder: Path) -> None:
    """Delete a rank's folder. Also delete the attempt if no rank is left, and the run if no attempt is left.

    Raises:
        OSError: the rank's folder cannot be deleted.
    """
    rank, attempt, run = rank_folder.name, rank_folder.parent.name, rank_folder.parent.parent
    with open_folder(run, below=1) as run_folder:
        with run_folder.folder(attempt) as attempt_folder:
            attempt_folder.remove_folder(rank, with_content=True)
            if any(name.startswith("rank-") for name in attempt_folder.names()):
                return
            with suppress(OSError):
                attempt_folder.remove_folder(HOSTS, with_content=True)
            with suppress(OSError):
                attempt_folder.remove(AGENT_LOG_NAME)
        with suppress(OSError):
            run_folder.remove_folder(attempt, with_content=False)
            run.rmdir()


Owner = tuple[str, int]
"""Run, attempt."""
SURE_AFTER = 3
"""Consecutive failures after which a file counts as unreadable and is logged."""
WRONG = (UnreadableError, OSError, ValueError, OverflowError, pa.ArrowException)
"""What a file that is not as it should be may raise."""


@dataclass(slots=True)
class FollowedRank:
    """A rank and how far it has come."""

    tail: RankTail
    announced: bool = False
    """Its row of ``ranks`` is stored."""
    over: bool = False
    """Its process has ended: what is on the disk is all there will be."""
    done: bool = False
    """Over, and all of it is stored; or its run is refused."""

    @property
    def owner(self) -> Owner:
        return self.tail.identity.run_id, self.tail.identity.attempt

    def began_again(self) -> bool:
        """Whether another process writes here now."""
        try:
            return self.tail.reader.identity().pid != self.tail.identity.pid
        except UnreadableError:
            return False


class Host:
    """Finds and follows the ranks under a spool folder, optionally of one run and attempt only."""

    def __init__(self, spool: Path, run_id: str | None = None, attempt: int | None = None) -> None:
        self._spool = spool
        self._run_id = run_id
        self._attempt = attempt
        self.ranks: dict[Path, FollowedRank] = {}
        self._failures: Counter[tuple[Path, str]] = Counter()
        self._logged: set[tuple[Path, str]] = set()
        self.refused_runs: dict[Owner, RefusedRowsError] = {}
        """Nothing of them is read or announced; their files stay."""

    @property
    def refused(self) -> list[Path]:
        """Folders that are not a rank's, or hold a file that is not: they were tried often enough to be sure."""
        return sorted({folder for (folder, _), count in self._failures.items() if count >= SURE_AFTER})

    def openings(self, owner: Owner) -> dict[int, int]:
        """When the folder of each followed rank of ``owner`` was first opened."""
        own = [rank.tail.identity for rank in self.ranks.values() if rank.owner == owner]
        return {identity.rank: identity.folder_opened_ns for identity in own}

    def refuse(self, owner: Owner, error: RefusedRowsError) -> None:
        """Follow a run no longer: the collector refuses it, for instance because its name is taken."""
        self.refused_runs[owner] = error
        log(f"rankscope agent: {error.message}. Its files are kept")

    def finish(self, *, drained: bool) -> None:
        """After a round in which all was shipped that could be read: note which ranks are done for good. What a rank
        that is not announced has recorded is not read yet."""
        in_doubt = {folder for (folder, _), count in self._failures.items() if count < SURE_AFTER}
        for folder, rank in self.ranks.items():
            shipped = rank.over and rank.announced and drained and folder not in in_doubt
            rank.done = shipped or rank.owner in self.refused_runs

    def find_ranks(self) -> None:
        """Take up ranks that have appeared, and those that began again after they were over."""
        for folder in find_rank_dirs(self._spool, self._run_id, self._attempt):
            known = self.ranks.get(folder)
            if known is not None and not (known.done and known.began_again()):
                continue
            try:
                tail = RankTail(folder)
                check_owner(tail.identity)
                self.ranks[folder] = FollowedRank(tail=tail)
            except WRONG as error:
                self._fail(folder, "identity", error)
            else:
                self._failures.pop((folder, "identity"), None)

    def read(self, max_records: int) -> Iterator[tuple[FollowedRank, Chunk]]:
        """New records of all announced ranks, at most so many together; the rest comes next time."""
        for folder, rank in self.ranks.items():
            if max_records <= 0:
                return
            if rank.done or not rank.announced or rank.owner in self.refused_runs:
                continue
            chunk = self._read_rank(folder, rank, max_records)
            if chunk is not None:
                max_records -= chunk.num_records
                yield rank, chunk

    def beats(self) -> dict[Owner, list[dict[str, Any]]]:
        """A heartbeat of each rank that is not done. Also notices which are over."""
        rows: dict[Owner, list[dict[str, Any]]] = {}
        for folder, rank in self.ranks.items():
            if rank.done or rank.owner in self.refused_runs:
                continue
            try:
                rows.setdefault(rank.owner, []).append(_beat(rank))
            except WRONG as error:
                rank.over = not is_alive(rank.tail.identity)
                self._fail(folder, "state", error)
            else:
                self._failures.pop((folder, "state"), None)
        return rows

    def _read_rank(self, folder: Path, rank: FollowedRank, max_records: int) -> Chunk | None:
        try:
            chunk = rank.tail.read(max_records)
        except WRONG as error:
            self._fail(folder, "records", error)
            return None
        self._failures.pop((folder, "records"), None)
        return chunk

    def _fail(self, folder: Path, what: str, error: Exception) -> None:
        """The others are followed on, and this one is tried again: a file may be in the making, or just deleted."""
        self._failures[folder, what] += 1
        # Once each: what a live rank goes on to record is read, and clears the count, beside a segment that cannot be.
        if self._failures[folder, what] == SURE_AFTER and (folder, what) not in self._logged:
            self._logged.add((folder, what))
            log(f"rankscope agent: cannot read {folder}: {error}")


def _beat(rank: FollowedRank) -> dict[str, Any]:
    state = rank.tail.reader.live()
    if rank.tail.is_rewritten(state):
        rank.tail.refresh_identity(check_owner)  # again: the file may now name another process
        rank.announced = False
    alive = is_alive(rank.tail.identity)
    if not alive:
        state = rank.tail.reader.live()  # it may have ended cleanly since the page was first read
    rank.over = state.ended or not alive
    return heartbeat(rank.tail.identity, state, alive=alive)
