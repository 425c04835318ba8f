"""Checks of an embedded store's folder before the engine opens it: free space, owner, and other processes."""

import fcntl
import os
import shutil
from pathlib import Path

from telemetry.errors import UnreachableError, UnsafeFolderError, UsageError
from telemetry.files.private_files import check_own, make_folder

LEAST_FREE_BYTES = 8 * 2**20
"""Room to create tables. On a full disk the engine leaves an empty definition, and the folder can never be opened."""


def check_room(folder: Path) -> None:
    """Raise UnreachableError if the disk has too little room to open a store."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < LEAST_FREE_BYTES:
        raise UnreachableError(
            f"{folder}: the disk has {free_bytes / 2**20:.0f} MiB left, not enough to open a store",
            hint=f"free {LEAST_FREE_BYTES / 2**20:.0f} MiB, then restart the collector; agents wait for it",
        )


def check_free(folder: Path) -> None:
    """Raise an error that names the likely owner of the folder. The engine's own message is long and unclear."""
    try:
        with make_folder(folder) as opened:
            opened.tighten()
            check_own(folder, os.fstat(opened.descriptor))  # the engine follows any link in it
            with os.fdopen(opened.open("status", os.O_RDWR | os.O_CREAT), "rb") as status:
                fcntl.flock(status, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UnreachableError(
            f"embedded store {folder} is open in another process",
            hint="use the collector that holds it, e.g. --store http://127.0.0.1:8719, or stop that process first",
        ) from None
    except UnsafeFolderError as error:
        raise UsageError(
            f"embedded store: {error.message}",
            hint="run as the folder's owner, or use your own folder: embedded:DIR",
        ) from None
    except OSError as error:
        raise UsageError(
            f"embedded store {folder}: {error.strerror}", hint="use a writable folder: embedded:DIR"
        ) from error
    if "?" in str(folder):
        raise UsageError(f"embedded store {folder}: '?' in a path", hint="use a folder without '?' in its path")
