"""What goes wrong with the ledger's file, in words for its user.

the disk is full or ill, the file is kept by others    it may be well later: nothing is to be moved away
it is no ledger, torn, or holds what nobody can read   another file is needed
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from diagnose.alerts.written import NO_RECORD
from telemetry.errors import UnreadableError

MOVE_IT = "move it away, or say --state FILE"
_OF_THE_DISK = {
    sqlite3.SQLITE_FULL: "make room on its disk; what it holds is kept",
    sqlite3.SQLITE_IOERR: "is its disk full, or ill? what it holds is kept",
    sqlite3.SQLITE_READONLY: "may this user write there, and is the disk mounted for that?",
    sqlite3.SQLITE_PERM: "may this user read and write there?",
    sqlite3.SQLITE_CANTOPEN: "is it a file, and may this user read and write it and its folder?",
    sqlite3.SQLITE_BUSY: "whoever uses it now may let it go: try again",
}
"""Errors of SQLite that say nothing against the file -> what to do."""


@contextmanager
def told_of(path: Path) -> Iterator[None]:
    """For a block that uses the file at ``path``.

    Raises:
        UnreadableError: in place of what SQLite, or reading a record, raised.
    """
    try:
        yield
    except sqlite3.Error as error:
        # The lowest byte is what is wrong, the others are where.
        hint = _OF_THE_DISK.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "")
        what = "cannot be used now" if hint else "holds no alerts"
        raise UnreadableError(f"{path} {what}: {error}", hint=hint or MOVE_IT) from error
    except NO_RECORD as error:
        told = f"{type(error).__name__}: {error}"
        raise UnreadableError(f"{path} holds an alert that cannot be read: {told}", hint=MOVE_IT) from error
