"""Find and follow the ranks of this host, and delete old rank files.

A fault of one rank does not affect other ranks. The agent deletes the files of ranks that are stored completely and
have not changed for days:

    SPOOL/<run_id>/<attempt>/rank-*     ended, every record acknowledged, unchanged for that many days  -->  deleted
                            /hosts      with the last rank of the attempt

A killed rank leaves one or two segments, its state page and the evidence of its end, for inspection. Records that no
collector has acknowledged are never deleted here; the size limit of the rank bounds them. The age is measured with the
monotonic clock if the machine has not rebooted since. With the wall clock, one wrong time could delete the files of a
rank that restarts, and with them its record numbers.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from telemetry.agent.settings import KEEP_DAYS
from telemetry.agent.tail import Chunk, RankTail
from telemetry.errors import RefusedRowsError, UnreadableError
from telemetry.evidence.journal import FOLDER as HOSTS
from telemetry.evidence.rank_state import check_owner, heartbeat, is_alive, is_hidden
from telemetry.files.private_files import open_folder
from telemetry.printable import log
from telemetry.process.child_process import BORN, is_of_this_boot
from telemetry.record import shipping_page, state_page
from telemetry.record.clocks.interface import Anchor, measure_anchor
from telemetry.record.layout import AGENT_LOG_NAME, META_NAME
from telemetry.record.reader import find_rank_dirs
from telemetry.records import RankIdentity

Owner = tuple[str, int]
"""Run id and attempt."""
SURE_AFTER = 3
"""Consecutive failures after which a file counts as unreadable and is logged."""
WRONG = (UnreadableError, OSError, ValueError, OverflowError, pa.ArrowException)
"""Errors of damaged files."""
T = TypeVar("T")


@dataclass(slots=True)
class FollowedRank:
    """A rank and its progress."""

    tail: RankTail
    announced: bool = False
    """Whether its row of the table ``ranks`` is stored."""
    over: bool = False
    """Whether its process has ended, so its files do not change any more."""
    done: bool = False
    """Whether the rank is over and stored completely, or its run is refused."""

    @property
    def owner(self) -> Owner:
        return self.tail.identity.run_id, self.tail.identity.attempt

    def began_again(self) -> bool:
        """Whether another process now writes to the folder of this rank."""
        try:
            return _process(self.tail.reader.identity()) != _process(self.tail.identity)
        except UnreadableError:
            return False


def _process(identity: RankIdentity) -> tuple[int, str]:
    """What identifies a process: its number and start. Successive containers of a pod often use the same number."""
    return identity.pid, identity.meta.get(BORN, "")


HIDDEN = (
    "rankscope agent: the ranks are in another PID namespace, so their processes cannot be seen. Their stacks, logs, "
    "samples and causes of death are not recorded. In Kubernetes, set hostPID: true in the pod of the agent"
)


class Host:
    """Finds and follows the ranks under a spool folder, optionally of one run and attempt only."""

    def __init__(self, spool: Path, run_id: str | None = None, attempt: int | None = None) -> None:
        self._spool = spool
        self._run_id = run_id
        self._attempt = attempt
        self.ranks: dict[Path, FollowedRank] = {}
        self._failures: Counter[tuple[Path, str]] = Counter()
        self._logged: set[tuple[Path, str]] = set()
        self._hidden_is_logged = False
        self.refused_runs: dict[Owner, RefusedRowsError] = {}
        """Runs that the collector refused. They are not read or announced, and their files stay."""

    @property
    def refused(self) -> list[Path]:
        """Folders that are unreadable, or contain an unreadable file, after ``SURE_AFTER`` attempts."""
        return sorted({folder for (folder, _), count in self._failures.items() if count >= SURE_AFTER})

    @property
    def num_hosts(self) -> int:
        """Hosts of the largest job with ranks here that run, if all hosts have as many ranks as this one."""
        sizes = {rank.owner: rank.tail.identity.topology.world_size for rank in self.ranks.values() if not rank.over}
        here = Counter(rank.owner for rank in self.ranks.values())
        return max((size // here[owner] for owner, size in sizes.items()), default=1)

    def openings(self, owner: Owner) -> dict[int, int]:
        """Rank -> time in nanoseconds when its folder was first opened, for the followed ranks of ``owner``."""
        tails = (rank.tail for rank in self.ranks.values() if rank.owner == owner)
        return {tail.identity.rank: tail.identity.folder_opened_ns for tail in tails}

    def refuse(self, owner: Owner, error: RefusedRowsError) -> None:
        """Stop following a run that the collector refuses, e.g. because its name is taken."""
        self.refused_runs[owner] = error
        log(f"rankscope agent: {error.message}. The files of this run are kept")

    def finish(self, *, drained: bool) -> None:
        """End a round, and set which ranks are done. ``drained``: all readable records were shipped."""
        in_doubt = {folder for (folder, _), count in self._failures.items() if count < SURE_AFTER}
        for folder, rank in self.ranks.items():
            shipped = rank.over and rank.announced and drained and folder not in in_doubt
            rank.done = shipped or rank.owner in self.refused_runs

    def find_ranks(self) -> None:
        """Follow new ranks, and ranks that began again after they were over."""
        for folder in find_rank_dirs(self._spool, self._run_id, self._attempt):
            known = self.ranks.get(folder)
            if known is None or (known.done and known.began_again()):
                tail = self._try(folder, "identity", partial(_opened_tail, folder))
                if tail is not None:
                    self.ranks[folder] = FollowedRank(tail=tail)
                    self._log_if_hidden(tail.identity, folder)

    def _log_if_hidden(self, identity: RankIdentity, folder: Path) -> None:
        if not self._hidden_is_logged and is_hidden(identity) and is_alive(identity, folder):
            self._hidden_is_logged = True
            log(HIDDEN)

    def read(self, max_records: int) -> Iterator[tuple[FollowedRank, Chunk]]:
        """New records of all announced ranks, at most ``max_records`` in total. The rest follows in the next call."""
        for folder, rank in self.ranks.items():
            if max_records <= 0:
                return
            if rank.done or not rank.announced or rank.owner in self.refused_runs:
                continue
            chunk = self._try(folder, "records", partial(rank.tail.read, max_records))
            if chunk is not None:
                max_records -= chunk.num_records
                yield rank, chunk

    def beats(self) -> dict[Owner, list[dict[str, Any]]]:
        """A heartbeat of each rank that is not done. Also detects which ranks are over."""
        rows: dict[Owner, list[dict[str, Any]]] = {}
        for folder, rank in self.ranks.items():
            if rank.done or rank.owner in self.refused_runs:
                continue
            row = self._try(folder, "state", partial(_beat, rank))
            if row is None:
                rank.over = not is_alive(rank.tail.identity, folder)
            else:
                rows.setdefault(rank.owner, []).append(row)
        return rows

    def _try(self, folder: Path, what: str, work: Callable[[], T]) -> T | None:
        """The result of ``work``; None after an error, which is logged once if it persists."""
        try:
            result = work()
        except WRONG as error:
            self._failures[folder, what] += 1
            # Once: later records of a live rank reset the count, although one of its segments is damaged.
            if self._failures[folder, what] == SURE_AFTER and (folder, what) not in self._logged:
                self._logged.add((folder, what))
                log(f"rankscope agent: cannot read {folder}: {error}")
            return None
        self._failures.pop((folder, what), None)
        return result


def _opened_tail(folder: Path) -> RankTail:
    tail = RankTail(folder)
    check_owner(tail.identity)
    return tail


def _beat(rank: FollowedRank) -> dict[str, Any]:
    state = rank.tail.reader.live()
    if rank.tail.is_rewritten(state):
        rank.tail.refresh_identity(check_owner)  # again: the file may now name another process
        rank.announced = False
    alive = is_alive(rank.tail.identity, rank.tail.reader.folder)
    if not alive:
        state = rank.tail.reader.live()  # it may have ended cleanly since the page was first read
    rank.over = state.ended or not alive
    return heartbeat(rank.tail.identity, state, alive=alive)


DAY_NS = 86_400 * 10**9
IDENTIFYING = (shipping_page.FILE_NAME, state_page.FILE_NAME, META_NAME)
"""Files by which :func:`sweep` recognises a rank that is stored. They are deleted last, so that the next call deletes
the rest of a folder that was deleted in part."""


def sweep(spool: Path, *, keep_days: float = KEEP_DAYS, now: Anchor | None = None) -> list[Path]:
    """Delete the folders of ranks that are stored completely and unchanged for ``keep_days``. Returns these folders.

    Folders that cannot be read or deleted stay. If ``now`` is None, the current time is used.
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
    tail = RankTail(folder, from_seq=0)
    identity, reader = tail.identity, tail.reader  # RankTail has checked that the files belong to this folder
    state, acked = reader.live(), reader.acked()
    if is_of_this_boot(identity.meta.get(BORN, "")):
        age_ns = now.monotonic_ns - state.beat_ns
    else:
        age_ns = now.wall_ns - state.anchor.to_wall_ns(state.beat_ns)
    over = state.ended or not is_alive(identity, folder)
    return over and age_ns > silent_ns and 0 < acked == reader.end_seq(acked)


def _remove(rank_folder: Path) -> None:
    """Delete a rank's folder. Also delete the attempt if no rank is left, and the run if no attempt is left.

    Raises:
        OSError: the rank's folder cannot be deleted.
    """
    rank, attempt, run = rank_folder.name, rank_folder.parent.name, rank_folder.parent.parent
    with open_folder(run, below=1) as run_folder:
        with run_folder.folder(attempt) as attempt_folder:
            attempt_folder.remove_folder(rank, with_content=True, last=IDENTIFYING)
            if any(name.startswith("rank-") for name in attempt_folder.names()):
                return
            with suppress(OSError):
                attempt_folder.remove_folder(HOSTS, with_content=True)
            with suppress(OSError):
                attempt_folder.remove(AGENT_LOG_NAME)
        with suppress(OSError):
            run_folder.remove_folder(attempt, with_content=False)
            run.rmdir()
