"""Files in the folder of a job, OUT. They are private under every umask.

    OUT/progress.jsonl   OUT/logs/rank-00003.log   OUT/spool   OUT/drive   OUT/checkpoints   OUT/store

OUT belongs to the user of the job, and only this user may write into it. A person names OUT, so OUT itself may be a
link. The files and folders that a job creates in OUT may not be links. A link, a pipe or a socket that was there before
is not used.
"""

import os
from io import BufferedReader, BufferedWriter
from pathlib import Path

from telemetry.errors import UnsafeFolderError, UsageError
from telemetry.files.private_files import Folder, check_own, make_folder, open_folder

LOGS, SPOOL, CHECKPOINTS = "logs", "spool", "checkpoints"
FOLDERS = (LOGS, SPOOL, CHECKPOINTS, "drive", "store")
"""The folders that a job creates in OUT."""
PROGRESS = "progress.jsonl"
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def make_out(out: Path, *, usual: Path) -> Path:
    """Create OUT, and check OUT and the folders of a job in it. Returns the path of OUT without links.

    ``usual``: the path if the user names none. It is in the working directory, so no part of it is trusted.

    Raises:
        UnsafeFolderError: another user owns one of these folders, or can write into it; or a folder of the job is a
            link; or the file of progress is no file of this user.
        UsageError: OUT is read-only.
        OSError: OUT cannot be created.
    """
    with make_folder(out, below=len(usual.parts) if out == usual else 0) as folder:
        check_own(out, os.fstat(folder.descriptor))
        if not os.access(out, os.W_OK | os.X_OK):
            raise UsageError(f"cannot write into {out}: it is read-only", hint="use another --out")
        try:
            os.close(folder.open(PROGRESS))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise UnsafeFolderError(f"{out / PROGRESS}: {error.strerror}", hint="remove it") from None
    out = out.resolve()
    for path in (out / name for name in FOLDERS):
        if path.is_symlink():
            raise UnsafeFolderError(
                f"{path} is a link, not a folder",
                hint="remove the link. To use another disk: another --out, or --checkpoints DIR for checkpoints",
            )
        if path.exists():
            with open_folder(path) as folder:
                check_own(path, os.fstat(folder.descriptor))
    return out


def open_log(out: Path, name: str) -> BufferedWriter:
    """The log of a process, open for appending. ``logs`` is created where it is missing.

    Raises:
        UnsafeFolderError: another user can write into ``logs``.
        OSError: it cannot be opened, or is a link.
    """
    with make_folder(out / LOGS, below=1) as folder:
        folder.tighten()
        return _opened(folder, name)


def open_output(path: Path) -> BufferedWriter:
    """A file of OUT, open for appending.

    Raises:
        OSError: it cannot be opened, or is a link.
    """
    with make_folder(path.parent) as folder:
        return _opened(folder, path.name)


def read_output(path: Path) -> BufferedReader:
    """A file of OUT, open for reading.

    Raises:
        OSError: it does not exist, or is no regular file of this user.
    """
    with open_folder(path.parent) as folder:
        return os.fdopen(folder.open(path.name), "rb")


def replace_output(path: Path, text: str) -> None:
    """Replace a file of OUT atomically.

    Raises:
        OSError: it cannot be written.
    """
    with make_folder(path.parent) as folder:
        folder.write(path.name, text.encode())


def _opened(folder: Folder, name: str) -> BufferedWriter:
    return os.fdopen(folder.open(name, _APPEND), "ab")
