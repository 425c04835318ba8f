"""Reads a file that the user names, without waiting and in bounded memory.

regular file       read, up to a limit
folder             refused: EISDIR
FIFO, device       refused: EINVAL, without waiting for another process
"""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_input(path: Path) -> BufferedReader:
    """The regular file at ``path``, open for reading.

    Raises:
        OSError: it cannot be opened, or is not a regular file. ``strerror`` and ``filename`` are set.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check_kind(os.fstat(number).st_mode, str(path))
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def read_input(path: Path, *, max_bytes: int) -> bytes:
    """The content of the regular file at ``path``.

    Raises:
        OSError: as of :func:`open_input`, or the file has more than ``max_bytes``.
    """
    with open_input(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EINVAL, f"Larger than {max_bytes:,} bytes", str(path))
    return content


def _check_kind(mode: int, path: str) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file", path)
