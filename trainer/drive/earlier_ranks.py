"""Ranks of an executor that was killed. They end with it, but the memory of a device is free only when they are gone.

executor killed --> the kernel kills its ranks --> rank gone
         '--> next executor --> order: check .......... the check starts here
"""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from telemetry.errors import RankscopeError
from telemetry.process.child_process import BORN, has_ended
from telemetry.record.reader import RankReader, find_rank_dirs

Recorded = tuple[int, str]
"""Pid and birth of a process."""


def recorded_ranks(spool: Path, run_id: str | None) -> tuple[Recorded, ...]:
    """The ranks of a run in ``spool`` that still live, of all attempts."""
    found = []
    for path in find_rank_dirs(spool, run_id):
        with suppress(RankscopeError, OSError, ValueError):
            identity = RankReader(path).identity()
            found.append((identity.pid, identity.meta.get(BORN, "")))
    return living(found)


def living(ranks: Iterable[Recorded]) -> tuple[Recorded, ...]:
    """The ranks whose process exists. A rank without a birth counts as ended: its pid may be that of another
    process."""
    return tuple((pid, born) for pid, born in ranks if born and not has_ended(pid, born))
