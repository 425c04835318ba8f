"""Where ranks record: the folders below a spool.

SPOOL/<run>/<attempt>/rank-00003/
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from telemetry.errors import UnsafeFolderError
from telemetry.files.private_files import Folder, open_folder


def find_rank_dirs(spool: Path, run: str | None = None, attempt: int | None = None) -> list[Path]:
    """Folders of ranks below ``spool``, of one run and attempt or of all, in order of run, attempt and rank."""
    found = [folder for name in _run_names(Path(spool), run) for folder in _rank_dirs(Path(spool), name, attempt)]
    return sorted(found, key=lambda path: (path.parent.parent.name, int(path.parent.name), path.name))


def _run_names(spool: Path, run: str | None) -> list[str]:
    if run is not None:
        return [] if run in ("", ".", "..") or "/" in run else [run]
    try:
        return os.listdir(spool)
    except OSError:
        return []


def _rank_dirs(spool: Path, run: str, attempt: int | None) -> list[Path]:
    """Folders of one run, and links in their place. Folders that this process may not read are left out."""
    found: list[Path] = []
    with suppress(OSError), open_folder(spool / run, below=1) as folder:
        for name in folder.names():
            if name.isascii() and name.isdecimal() and attempt in (None, int(name)):
                with suppress(OSError), folder.folder(name) as attempt_folder:
                    found += [
                        attempt_folder.path / rank for rank in attempt_folder.names() if _is_rank(attempt_folder, rank)
                    ]
    return found


def _is_rank(attempt_folder: Folder, name: str) -> bool:
    """A link or a mount point counts: opening it fails with a message for the user."""
    try:
        return name.startswith("rank-") and attempt_folder.kind(name) in (stat.S_IFDIR, stat.S_IFLNK)
    except UnsafeFolderError:
        return True
    except OSError:
        return False
