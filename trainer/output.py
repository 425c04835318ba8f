"""Files in the folder of a job, OUT. They are private under every umask, also if OUT is not.

    OUT/progress.jsonl   OUT/logs/rank-00003.log   OUT/logs/agent.log   OUT/logs/collector.log

Another user may write into OUT: a link in place of a file or of ``logs`` is not followed.
"""

import os
from io import BufferedWriter
from pathlib import Path

from telemetry.files.private_files import Folder, make_folder

LOGS = "logs"
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def make_logs(out: Path) -> None:
    """Create ``logs`` where it is missing, and remove the permissions of others.

    Raises:
        UnsafeFolderError: another user can write into it.
        OSError: it cannot be made.
    """
    with make_folder(out / LOGS, below=1) as folder:
        folder.tighten()


def open_log(out: Path, name: str) -> BufferedWriter:
    """The log of a process, for appending. ``logs`` is created where it is missing.

    Raises:
        UnsafeFolderError: another user can write into ``logs``.
        OSError: it cannot be opened, or is a link.
    """
    with make_folder(out / LOGS, below=1) as folder:
        folder.tighten()
        return _opened(folder, name)


def open_output(path: Path) -> BufferedWriter:
    """A file of OUT, for appending.

    Raises:
        OSError: it cannot be opened, or is a link.
    """
    with make_folder(path.parent) as folder:
        return _opened(folder, path.name)


def replace_output(path: Path, text: str) -> None:
    """Replace a file of OUT atomically.

    Raises:
        OSError: it cannot be written.
    """
    with make_folder(path.parent) as folder:
        folder.write(path.name, text.encode())


def _opened(folder: Folder, name: str) -> BufferedWriter:
    return os.fdopen(folder.open(name, _APPEND), "ab")
