"""Spools do not grow from run to run: what is stored whole and has not been touched for long is deleted.

    SPOOL/<run_id>/<attempt>/rank-*     over, every record acknowledged, silent for so many days  -->  gone
                            /hosts      with the last rank of the attempt

Of a rank that was killed a segment or two are left, its page and the evidence of its end: people may look into them for
some days. What no collector has acknowledged is never deleted here; the cap of the rank bounds it.
"""

import shutil
import time
from contextlib import suppress
from pathlib import Path

from telemetry.agent.heartbeat import is_alive
from telemetry.agent.journal import FOLDER as HOSTS
from telemetry.agent.tail import RankTail
from telemetry.errors import UnreadableError
from telemetry.record.reader import find_rank_dirs

KEEP_DAYS = 14.0
_DAY_S = 86_400.0


def sweep(spool: Path, *, keep_days: float = KEEP_DAYS, now_s: float | None = None) -> list[Path]:
    """Delete the folders of ranks that are stored whole and silent for ``keep_days``; which. Raises nothing: what
    cannot be read, or deleted, stays."""
    before_s = (time.time() if now_s is None else now_s) - keep_days * _DAY_S
    gone: list[Path] = []
    for folder in find_rank_dirs(spool):
        with suppress(UnreadableError, OSError, ValueError, OverflowError):
            if _is_stored(folder, before_s * 1e9):
                shutil.rmtree(folder)
                gone.append(folder)
                _remove_empty(folder.parent)
    return gone


def _is_stored(folder: Path, before_ns: float) -> bool:
    """Whole, and its rank was over before then."""
    tail = RankTail(folder, from_seq=0)
    identity, reader = tail.identity, tail.reader  # a folder of that name, and nothing else's
    state, acked = reader.live(), reader.acked()
    over = state.ended or not is_alive(identity)
    return over and state.anchor.to_wall_ns(state.beat_ns) < before_ns and 0 < acked == reader.end_seq(acked)


def _remove_empty(attempt_folder: Path) -> None:
    """An attempt without ranks, and a run without attempts."""
    if not any(attempt_folder.glob("rank-*")):
        shutil.rmtree(attempt_folder / HOSTS, ignore_errors=True)
        with suppress(OSError):
            attempt_folder.rmdir()
            attempt_folder.parent.rmdir()
