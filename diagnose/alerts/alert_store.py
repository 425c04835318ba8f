"""Alerts and unsent notices in one SQLite file, which survive ``kill -9``.

    alerts(fingerprint, body)                               the state between two checks
    outbox(hook, number, fingerprint, repeated, body)       unsent notices of a hook, in order of number
    numbers(next_number)
    aside(hook, number, body)                               unreadable notices

One check is one transaction: alerts and their notices are always written together. A notice is removed from the outbox
after its hook has accepted it. If the process is killed in between, the notice is sent again (at least once).

A watcher locks ``FILE.lock`` in the same folder. The kernel releases the lock when the process ends.
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from diagnose.alerts.alert import NO_RECORD, Alert, alert_text, read_alert
from diagnose.alerts.life import Outcome, State
from diagnose.alerts.notice import Notice, notice_text, read_notice
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
_COUNTS = "SELECT hook, count(*) FROM outbox GROUP BY hook"
_ROW = "WHERE hook = ? AND number = ?"
_ASIDE = "CREATE TABLE IF NOT EXISTS aside (hook TEXT NOT NULL, number INTEGER NOT NULL, body TEXT NOT NULL)"


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


class SpoiledNoticesError(Exception):
    """Notices of the outbox were unreadable, and were moved to the table ``aside``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Notices that a hook has not accepted yet."""

    count: int
    since_ns: int
    """Wall clock: when the oldest one was due. 0: it is unreadable."""


class AlertStore:
    """The file of one watcher and its hooks. May be used by any thread.

    Raises:
        UsageError: another watcher uses it, or it cannot be created.
        UnreadableError: it is not an alert store, or it has another version.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._held = _hold(path)
        try:
            self._database: sqlite3.Connection | None = _open(path, ours=True)
        except BaseException:
            os.close(self._held)
            raise
        self._written: dict[str, Alert] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Notices that a hook accepts after that are sent again at the next start. Safe to repeat."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                os.close(self._held)
            self._database = None

    def load(self) -> State:
        """The state after the last check.

        Raises:
            UnreadableError: it is unreadable.
        """
        with readable_errors(self._path), self._transaction() as database:
            (number,) = database.execute("SELECT next_number FROM numbers").fetchone()
            state = State(alerts=_alerts(database), next_number=int(number))
        self._written = dict(state.alerts)
        return state

    def store(self, outcome: Outcome) -> None:
        """Write the result of a check. If this raises, nothing is written.

        Raises:
            sqlite3.Error: the file cannot be written, for example because the disk is full.
        """
        alerts = outcome.state.alerts
        changed = [alert for name, alert in alerts.items() if self._written.get(name) != alert]
        gone = [name for name in self._written if name not in alerts]
        if not (changed or gone or outcome.deliveries):
            return
        with self._transaction() as database:
            database.executemany("DELETE FROM alerts WHERE fingerprint = ?", ((name,) for name in gone))
            database.executemany(
                "INSERT OR REPLACE INTO alerts VALUES (?, ?)",
                ((alert.fingerprint, alert_text(alert)) for alert in changed),
            )
            for delivery in outcome.deliveries:
                notice, body = delivery.notice, notice_text(delivery.notice)
                for hook in delivery.hooks:  # replaces earlier repetitions that the hook has not accepted yet
                    key = (hook, notice.fingerprint)
                    database.execute("DELETE FROM outbox WHERE hook = ? AND fingerprint = ? AND repeated", key)
                    row = (hook, notice.number, notice.fingerprint, notice.repeated, body)
                    database.execute("INSERT INTO outbox VALUES (?, ?, ?, ?, ?)", row)
            database.execute("UPDATE numbers SET next_number = ?", (outcome.state.next_number,))
        self._written = dict(alerts)

    def waiting(self, hook: str, most: int) -> list[Notice]:
        """The oldest notices that ``hook`` has not accepted yet.

        Raises:
            SpoiledNoticesError: some of these are unreadable. They are removed from the outbox.
        """
        with self._transaction() as database:
            oldest = "SELECT number, body FROM outbox WHERE hook = ? ORDER BY number LIMIT ?"
            notices = {number: _readable(body) for number, body in database.execute(oldest, (hook, most))}
            spoiled = [number for number, notice in notices.items() if notice is None]
            for row in ((hook, number) for number in spoiled):
                database.execute(_ASIDE)
                database.execute(f"INSERT INTO aside SELECT hook, number, body FROM outbox {_ROW}", row)
                database.execute(f"DELETE FROM outbox {_ROW}", row)
        if spoiled:
            numbers = ", ".join(map(str, spoiled))
            raise SpoiledNoticesError(
                f"unreadable notifications are moved to the table `aside` of the alert state: {numbers}"
            )
        return [notice for notice in notices.values() if notice is not None]

    def taken(self, hook: str, notices: Iterable[Notice]) -> None:
        """Remove notices that ``hook`` has accepted, or has rejected for good."""
        with self._transaction() as database:
            rows = ((hook, notice.number) for notice in notices)
            database.executemany(f"DELETE FROM outbox {_ROW}", rows)

    def num_waiting(self) -> dict[str, int]:
        """Hook -> number of notices that it has not accepted yet."""
        with self._transaction() as database:
            return dict(database.execute(_COUNTS).fetchall())

    def drop_all_but(self, hooks: Iterable[str]) -> dict[str, int]:
        """Remove the notices of all other hooks. Returns hook -> number of removed notices.

        Raises:
            UnreadableError: the outbox is unreadable, or cannot be written.
        """
        named = frozenset(hooks)
        with readable_errors(self._path), self._transaction() as database:
            dropped = {name: count for name, count in database.execute(_COUNTS).fetchall() if name not in named}
            database.executemany("DELETE FROM outbox WHERE hook = ?", ((name,) for name in dropped))
        return dropped

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._database is None:
                raise sqlite3.ProgrammingError("the alert state is closed")
            with self._database:
                self._database.execute("BEGIN")
                yield self._database


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


def read_alert_store(path: Path) -> tuple[State, dict[str, Waiting]]:
    """The state and the waiting notices of each hook. The watcher is not disturbed.

    Raises:
        UnreadableError: it is not an alert store, or it has another version.
    """
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return State(), {}
    with closing(_open(path, ours=False)) as database, readable_errors(path):
        return State(alerts=_alerts(database)), _waiting(database)


def _hold(path: Path) -> int:
    """Take the lock until this process ends."""
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


def _open(path: Path, *, ours: bool) -> sqlite3.Connection:
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
        until_known.pop_all()
    return database


def _set_up(database: sqlite3.Connection) -> int:
    """The version of the file. A new file gets its tables."""
    database.execute("PRAGMA synchronous = NORMAL")
    with database:  # one transaction: a watcher may be creating the tables now
        database.execute("BEGIN")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (num_tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if version == 0 and not num_tables:
        database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
        return VERSION
    return int(version)


def _waiting(database: sqlite3.Connection) -> dict[str, Waiting]:
    # In SQLite, a query with min() returns the other columns of the row that has the minimum.
    rows = database.execute("SELECT hook, count(*), min(number), body FROM outbox GROUP BY hook")
    oldest = ((hook, count, _readable(body)) for hook, count, _, body in rows)
    return {
        hook: Waiting(count=count, since_ns=notice.created_ns if notice is not None else 0)
        for hook, count, notice in oldest
    }


def _readable(body: str) -> Notice | None:
    try:
        return read_notice(body)
    except NO_RECORD:
        return None


def _alerts(database: sqlite3.Connection) -> dict[str, Alert]:
    bodies = database.execute("SELECT body FROM alerts ORDER BY fingerprint")
    return {alert.fingerprint: alert for alert in (read_alert(body) for (body,) in bodies)}
