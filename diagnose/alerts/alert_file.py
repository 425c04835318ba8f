"""The SQLite file of a watcher: its lock, its tables, and its errors.

A watcher locks ``FILE.lock`` in the same folder. The kernel releases the lock when the process ends.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from diagnose.alerts.alert import NO_RECORD
from telemetry.errors import UnreadableError, UsageError
from telemetry.files.private_files import make_folder

VERSION = 1
BUSY_S = 10.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS alerts (fingerprint TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (
    hook TEXT NOT NULL, number INTEGER NOT NULL, fingerprint TEXT NOT NULL, repeated INTEGER NOT NULL,
    body TEXT NOT NULL, PRIMARY KEY (hook, number)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS of_alert ON outbox (fingerprint);
CREATE TABLE IF NOT EXISTS numbers (next_number INTEGER NOT NULL);
INSERT INTO numbers SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM numbers);
"""
_LOG = "CREATE TABLE IF NOT EXISTS log (number INTEGER PRIMARY KEY, body TEXT NOT NULL)"
"""The table of the findings log. Files of older versions do not have it."""
ASIDE = "CREATE TABLE IF NOT EXISTS aside (hook TEXT NOT NULL, number INTEGER NOT NULL, body TEXT NOT NULL)"
"""Unreadable records. The table is created when it is needed."""
MOVE_IT = "move it away, or use another file: --state FILE"
_DISK_HINTS = {
    sqlite3.SQLITE_FULL: "free disk space; the saved alerts are kept",
    sqlite3.SQLITE_IOERR: "check whether the disk is full or faulty; the saved alerts are kept",
    sqlite3.SQLITE_READONLY: "check that this user may write there and that the disk is not mounted read-only",
    sqlite3.SQLITE_PERM: "check that this user may read and write there",
    sqlite3.SQLITE_CANTOPEN: "check that it is a file, and that this user may read and write it and its folder",
    sqlite3.SQLITE_BUSY: "another process uses it: retry",
}
"""Errors of SQLite after which the file can be kept -> what to do. After other errors, a new file is needed."""


class SpoiledRecordsError(Exception):
    """Waiting records were unreadable, and were moved to the table ``aside``."""

    def __init__(self, what: str, numbers: Iterable[int]) -> None:
        listed = ", ".join(map(str, numbers))
        super().__init__(f"unreadable {what} are moved to the table `aside` of the alert state: {listed}")


@contextmanager
def readable_errors(path: Path) -> Iterator[None]:
    """Convert errors in a block that uses the file at ``path``.

    Raises:
        UnreadableError: SQLite raised an error, or a record cannot be read.
    """
    try:
        yield
    except sqlite3.Error as error:
        # The lowest byte is the error, the others are details.
        hint = _DISK_HINTS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "")
        what = "cannot be used" if hint else "is not an alert state file"
        raise UnreadableError(f"{path} {what}: {error}", hint=hint or MOVE_IT) from error
    except NO_RECORD as error:
        reason = f"{type(error).__name__}: {error}"
        raise UnreadableError(f"{path} holds an alert that cannot be read: {reason}", hint=MOVE_IT) from error


def take_lock(path: Path) -> int:
    """Lock the file until this process ends. Returns the descriptor of the lock.

    Raises:
        UsageError: the folder is not writable, or another watcher uses the file.
    """
    lock = path.with_name(path.name + ".lock")
    try:
        with make_folder(path.parent) as folder:
            descriptor = folder.open(lock.name, os.O_RDWR | os.O_CREAT)
            # created here with private permissions: SQLite would create it with those of the umask
            os.close(folder.open(path.name, os.O_RDWR | os.O_CREAT))
    except OSError as error:
        raise UsageError(
            f"cannot write the alert state to {path}: {error.strerror}",
            hint="use another file: --state FILE, or `state` in the rules file",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise UsageError(
            f"another watcher uses the alert state {path}",
            hint="end that watcher, or use another file here: --state FILE",
        ) from error
    return descriptor


def open_file(path: Path, *, ours: bool) -> sqlite3.Connection:
    """Open the database in the file. ``ours``: this process has locked it, and may change its tables.

    Raises:
        UnreadableError: it is not a state file of this version, or SQLite cannot use it.
    """
    if path.exists() and not path.is_file():
        raise UnreadableError(f"{path} is not a regular file", hint="use another file: --state FILE")
    with readable_errors(path), ExitStack() as until_known:
        database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        until_known.callback(database.close)
        if ours:  # SQLite changes this only if no other process does
            database.execute("PRAGMA journal_mode = WAL")
        version = _set_up(database)
        if version != VERSION:
            raise UnreadableError(f"{path} was written by another version of rankscope ({version})", hint=MOVE_IT)
        if ours:
            database.execute(_LOG)
        until_known.pop_all()
    return database


def _set_up(database: sqlite3.Connection) -> int:
    """Create the tables if the file is new. Returns the version of the file."""
    database.execute("PRAGMA synchronous = NORMAL")
    with database:  # one transaction: a watcher may be creating the tables now
        database.execute("BEGIN")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (num_tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if version == 0 and not num_tables:
        database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
        return VERSION
    return int(version)
