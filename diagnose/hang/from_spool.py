"""The rank files of a job, as evidence of why it stands still."""

from collections.abc import Iterator
from pathlib import Path

from diagnose.hang.evidence import HangEvidence
from diagnose.hang.from_bodies import Body, evidence_from_bodies
from telemetry.errors import UsageError
from telemetry.record.reader import find_rank_dirs


def evidence_from_spool(spool: Path, run_id: str | None, attempt: int | None) -> HangEvidence:
    """What the agent left beside the rank files of a run; of the newest where none is named.

    Raises:
        UsageError: no rank file there.
        UnreadableError: nothing that can be read.
    """
    folders = find_rank_dirs(spool, run_id, attempt)
    if not folders:
        raise UsageError(f"no rank file under {spool}", hint="name the folder that ranks write into: --spool DIR")
    newest = max(folders, key=lambda folder: (folder / "state").stat().st_mtime_ns).parent
    bodies = (body for folder in folders if folder.parent == newest for body in _bodies(folder))
    return evidence_from_bodies(bodies, newest.parent.name, int(newest.name))


def _bodies(folder: Path) -> Iterator[Body]:
    rank = int(folder.name.rpartition("-")[2])
    for path in sorted((folder / "evidence").glob("*")):
        if path.is_file() and not path.suffix:
            yield Body(
                rank=rank, kind=path.name, text=path.read_text("utf-8", "replace"), at_ns=path.stat().st_mtime_ns
            )
