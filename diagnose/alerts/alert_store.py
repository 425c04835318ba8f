"""Alerts and unsent notices in one SQLite file, which survive ``kill -9``.

    alerts(fingerprint, body)                               the state between two checks
    outbox(hook, number, fingerprint, repeated, body)       unsent notices of a hook, in order of number
    numbers(next_number)
    aside(hook, number, body)                               unreadable notices

One check is one transaction: alerts and their notices are always written together. A notice leaves the outbox after its
hook has accepted it. If the process is killed in between, the notice is sent again (at least once).

Beside the file lies ``FILE.lock``, locked while a watcher lives; the kernel unlocks it with the process.
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from diagnose.alerts.alert import Alert
from diagnose.alerts.life import Outcome, State
from diagnose.alerts.notice import Notice
from diagnose.alerts.written import MOVE_IT, NO_RECORD, alert_text, notice_text, read_alert, read_notice, told_of
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
_ASIDE = "CREATE TABLE IF NOT EXISTS aside (hook TEXT NOT NULL, number INTEGER NOT NULL, body TEXT NOT NULL)"


class SpoiledNoticesError(Exception):
    """Notices of the outbox could not be read, and were set aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What a hook has not taken yet."""

    count: int
    since_ns: int
    """Wall clock: when the oldest of it was to be told; 0: nobody can read that."""


def default_state_file(environment: Mapping[str, str] = os.environ) -> Path:
    """``rankscope/alerts.sqlite`` in this user's folder of state (XDG_STATE_HOME)."""
    folder = environment.get("XDG_STATE_HOME", "")
    return (Path(folder) if os.path.isabs(folder) else Path.home() / ".local" / "state") / "rankscope/alerts.sqlite"


class AlertStore:
    """The file, as one watcher and the threads of its hooks use it. For any thread.

    Raises:
        UsageError: another watcher has it, or it cannot be made there.
        UnreadableError: it is no alert_store, or one of another version.
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
        """Let go of it. What a hook takes afterwards is told again next time. Safe to repeat."""
        with self._lock:
            if self._database is not None:
                self._database.close()
                os.close(self._held)
            self._database = None

    def load(self) -> State:
        """What stood after the last look.

        Raises:
            UnreadableError: nobody can tell.
        """
        with told_of(self._path), self._transaction() as database:
            alerts = _alerts(database)
            (number,) = database.execute("SELECT next_number FROM numbers").fetchone()
            state = State(alerts=alerts, next_number=int(number))
        self._written = dict(alerts)
        return state

    def store(self, outcome: Outcome) -> None:
        """Write what a look led to: all of it, or, where this raises, nothing.

        Raises:
            sqlite3.Error: the disk is full, or the like.
        """
        alerts = outcome.state.alerts
        changed = [alert for name, alert in alerts.items() if self._written.get(name) != alert]
        gone = [name for name in self._written if name not in alerts]
        if not (changed or gone or outcome.tellings):
            return
        with self._transaction() as database:
            database.executemany("DELETE FROM alerts WHERE fingerprint = ?", ((name,) for name in gone))
            database.executemany(
                "INSERT OR REPLACE INTO alerts VALUES (?, ?)", ((one.fingerprint, alert_text(one)) for one in changed)
            )
            for telling in outcome.tellings:
                _put(database, telling.notice, telling.hooks)
            database.execute("UPDATE numbers SET next_number = ?", (outcome.state.next_number,))
        self._written = dict(alerts)

    def waiting(self, hook: str, most: int) -> list[Notice]:
        """The oldest notices that ``hook`` has not taken yet.

        Raises:
            SpoiledNoticesError: some of these cannot be read. They are no longer among those that wait.
        """
        with self._transaction() as database:
            asked = "SELECT number, body FROM outbox WHERE hook = ? ORDER BY number LIMIT ?"
            notices = {number: _readable(body) for number, body in database.execute(asked, (hook, most))}
            spoiled = [number for number, notice in notices.items() if notice is None]
            _set_aside(database, hook, spoiled)
        if spoiled:
            numbers = ", ".join(map(str, spoiled))
            raise SpoiledNoticesError(
                f"unreadable notices are moved to the table `aside` of the alert state: {numbers}"
            )
        return [notice for notice in notices.values() if notice is not None]

    def taken(self, hook: str, notices: Iterable[Notice]) -> None:
        """Strike out what ``hook`` has taken, or never will."""
        with self._transaction() as database:
            rows = ((hook, notice.number) for notice in notices)
            database.executemany("DELETE FROM outbox WHERE hook = ? AND number = ?", rows)

    def num_waiting(self) -> dict[str, int]:
        """Hook -> notices that it has not taken yet."""
        with self._transaction() as database:
            return _num_waiting(database)

    def drop_all_but(self, hooks: Iterable[str]) -> dict[str, int]:
        """Strike out what waits for hooks that are no longer named: hook -> how many.

        Raises:
            UnreadableError: nobody can tell what waits, or it cannot be written down.
        """
        named = frozenset(hooks)
        with told_of(self._path), self._transaction() as database:
            dropped = {name: count for name, count in _num_waiting(database).items() if name not in named}
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


def read_alert_store(path: Path) -> tuple[State, dict[str, Waiting]]:
    """What stands in an alert store and what waits for each hook, without disturbing its watcher.

    Raises:
        UnreadableError: it is no alert_store, or one of another version.
    """
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return State(), {}
    with closing(_open(path, ours=False)) as database, told_of(path):
        return State(alerts=_alerts(database)), _waiting(database)


def _hold(path: Path) -> int:
    """The lock, ours until this process ends."""
    lock = path.with_name(path.name + ".lock")
    try:
        with make_folder(path.parent) as folder:
            descriptor = folder.open(lock.name, os.O_RDWR | os.O_CREAT)
            # created here with private permissions: SQLite would create it with those of the umask
            os.close(folder.open(path.name, os.O_RDWR | os.O_CREAT))
    except OSError as error:
        raise UsageError(
            f"cannot write the alert state to {path}: {error.strerror}",
            hint="name another file: --state FILE, or `state` in the rules file",
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
        raise UnreadableError(f"{path} is not a regular file", hint="name another file: --state FILE")
    with told_of(path), ExitStack() as until_known:
        database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
        until_known.callback(database.close)
        if ours:  # SQLite changes this only where nobody else is about to
            database.execute("PRAGMA journal_mode = WAL")
        version = _set_up(database)
        if version != VERSION:
            raise UnreadableError(f"{path} was written by another version of rankscope ({version})", hint=MOVE_IT)
        until_known.pop_all()
    return database


def _set_up(database: sqlite3.Connection) -> int:
    """The version of the file; a new one gets its tables."""
    database.execute("PRAGMA synchronous = NORMAL")
    with database:  # one moment of the file: a watcher may be setting it up just now
        database.execute("BEGIN")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (num_tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if version == 0 and not num_tables:
        database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
        return VERSION
    return int(version)


def _put(database: sqlite3.Connection, notice: Notice, hooks: Iterable[str]) -> None:
    """Into the outbox; earlier repetitions that a hook has not taken yet say less than this, and go."""
    body = notice_text(notice)
    for hook in hooks:
        database.execute(
            "DELETE FROM outbox WHERE hook = ? AND fingerprint = ? AND repeated",
            (hook, notice.fingerprint),
        )
        row = (hook, notice.number, notice.fingerprint, notice.repeated, body)
        database.execute("INSERT INTO outbox VALUES (?, ?, ?, ?, ?)", row)


def _num_waiting(database: sqlite3.Connection) -> dict[str, int]:
    return dict(database.execute("SELECT hook, count(*) FROM outbox GROUP BY hook").fetchall())


def _waiting(database: sqlite3.Connection) -> dict[str, Waiting]:
    # Beside min() SQLite gives the other columns of the row that has it.
    rows = database.execute("SELECT hook, count(*), min(number), body FROM outbox GROUP BY hook")
    oldest = ((hook, count, _readable(body)) for hook, count, _, body in rows)
    return {
        hook: Waiting(count=count, since_ns=notice.told_ns if notice is not None else 0)
        for hook, count, notice in oldest
    }


def _readable(body: str) -> Notice | None:
    """The notice in a row of the outbox; None where that is anything else."""
    try:
        return read_notice(body)
    except NO_RECORD:
        return None


def _set_aside(database: sqlite3.Connection, hook: str, numbers: Iterable[int]) -> None:
    for number in numbers:
        database.execute(_ASIDE)
        row = (hook, number)
        database.execute("INSERT INTO aside SELECT hook, number, body FROM outbox WHERE hook = ? AND number = ?", row)
        database.execute("DELETE FROM outbox WHERE hook = ? AND number = ?", row)


def _alerts(database: sqlite3.Connection) -> dict[str, Alert]:
    bodies = database.execute("SELECT body FROM alerts ORDER BY fingerprint")
    return {alert.fingerprint: alert for alert in (read_alert(body) for (body,) in bodies)}
