"""Deletes old rank files from the spool: those that are stored completely and have not changed for days.

    SPOOL/<run_id>/<attempt>/rank-*     ended, every record acknowledged, unchanged for that many days  -->  deleted
                            /hosts      with the last rank of the attempt

A killed rank leaves one or two segments, its state page and the evidence of its end. These are kept for some days for
inspection. Records that no collector has acknowledged are never deleted here; the size limit of the rank bounds them.

The age is measured with the monotonic clock if the machine has not rebooted since. A wall clock that is wrong for a
moment must not delete the record numbers of a rank that restarts.
"""

from contextlib import suppress
from pathlib import Path

from telemetry.agent.settings import KEEP_DAYS
from telemetry.agent.tail import RankTail
from telemetry.errors import UnreadableError
from telemetry.evidence.journal import FOLDER as HOSTS
from telemetry.evidence.owned_process import is_alive
from telemetry.files.private_files import open_folder
from telemetry.process.child_process import BORN, is_of_this_boot
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
