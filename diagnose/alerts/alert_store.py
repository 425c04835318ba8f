"""Alerts and unsent notices in one SQLite file, which survive ``kill -9``.

    alerts(fingerprint, body)                               the state between two checks
    outbox(hook, number, fingerprint, repeated, body)       unsent notices of a hook, in order of number
    numbers(next_number)
    aside(hook, number, body)                               unreadable notices, and rows of the log (hook: findings log)
    log(number, body)                                       unsent rows of the findings log

One check is one transaction: alerts, their notices and rows are always written together. A notice is removed from the
outbox after its hook has accepted it. If the process is killed in between, the notice is sent again (at least once).

``alert_file.py`` opens and locks the file.
"""

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from diagnose.alerts.alert import NO_RECORD, Alert, alert_text, read_alert, record_text
from diagnose.alerts.alert_file import ASIDE, SpoiledRecordsError, open_file, readable_errors, take_lock
from diagnose.alerts.life import Outcome, State
from diagnose.alerts.log import LogRow, read_log_row
from diagnose.alerts.notice import Notice, notice_text, read_notice

_COUNTS = "SELECT hook, count(*) FROM outbox GROUP BY hook"
_ROW = "WHERE hook = ? AND number = ?"
_LOG_ROW = "WHERE number = ?"
_OF_LOG = "findings log"
"""Name of the findings log in the table ``aside``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Notices that a hook has not accepted yet."""

    count: int
    since_ns: int
    """Wall clock: when the oldest notice was created. 0 if that notice is unreadable."""


class AlertStore:
    """The file of one watcher and its hooks. May be used by any thread.

    Raises:
        UsageError: another watcher uses it, or it cannot be created.
        UnreadableError: it is not an alert store, or it has another version.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._held = take_lock(path)
        try:
            self._database: sqlite3.Connection | None = open_file(path, ours=True)
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
        if not (changed or gone or outcome.deliveries or outcome.log):
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
            rows = ((record_text(row),) for row in outcome.log)
            database.executemany("INSERT INTO log (body) VALUES (?)", rows)
            database.execute("UPDATE numbers SET next_number = ?", (outcome.state.next_number,))
        self._written = dict(alerts)

    def waiting(self, hook: str, most: int) -> list[Notice]:
        """The oldest notices that ``hook`` has not accepted yet.

        Raises:
            SpoiledRecordsError: some of these are unreadable. They are removed from the outbox.
        """
        with self._transaction() as database:
            oldest = "SELECT number, body FROM outbox WHERE hook = ? ORDER BY number LIMIT ?"
            notices = {number: _readable(body) for number, body in database.execute(oldest, (hook, most))}
            spoiled = [number for number, notice in notices.items() if notice is None]
            for row in ((hook, number) for number in spoiled):
                database.execute(ASIDE)
                database.execute(f"INSERT INTO aside SELECT hook, number, body FROM outbox {_ROW}", row)
                database.execute(f"DELETE FROM outbox {_ROW}", row)
        if spoiled:
            raise SpoiledRecordsError("notifications", spoiled)
        return [notice for notice in notices.values() if notice is not None]

    def taken(self, hook: str, notices: Iterable[Notice]) -> None:
        """Remove notices that ``hook`` has accepted, or has rejected for good."""
        with self._transaction() as database:
            rows = ((hook, notice.number) for notice in notices)
            database.executemany(f"DELETE FROM outbox {_ROW}", rows)

    def log_waiting(self, most: int) -> dict[int, LogRow]:
        """The oldest rows of the findings log that were not sent: number -> row.

        Raises:
            SpoiledRecordsError: some of these are unreadable. They are removed from the rows that wait.
        """
        with self._transaction() as database:
            # As bytes: SQLite raises an error if a text is not UTF-8.
            oldest = "SELECT number, CAST(body AS BLOB) FROM log ORDER BY number LIMIT ?"
            rows = {number: _readable_row(body) for number, body in database.execute(oldest, (most,))}
            spoiled = [number for number, row in rows.items() if row is None]
            for number in spoiled:
                database.execute(ASIDE)
                database.execute(f"INSERT INTO aside SELECT ?, number, body FROM log {_LOG_ROW}", (_OF_LOG, number))
                database.execute(f"DELETE FROM log {_LOG_ROW}", (number,))
        if spoiled:
            raise SpoiledRecordsError("rows", spoiled)
        return {number: row for number, row in rows.items() if row is not None}

    def log_count(self) -> int:
        """Number of rows of the findings log that were not sent."""
        with self._transaction() as database:
            (count,) = database.execute("SELECT count(*) FROM log").fetchone()
        return int(count)

    def log_drop_oldest(self, most: int) -> int:
        """Keep the newest ``most`` rows of the findings log. Returns the number of removed rows."""
        newest = "SELECT number FROM log ORDER BY number DESC LIMIT ?"
        with self._transaction() as database:
            return database.execute(f"DELETE FROM log WHERE number NOT IN ({newest})", (most,)).rowcount

    def log_taken(self, numbers: Sequence[int]) -> None:
        """Remove rows that the collector has stored."""
        with self._transaction() as database:
            database.executemany(f"DELETE FROM log {_LOG_ROW}", ((number,) for number in numbers))

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


def read_alert_store(path: Path) -> tuple[State, dict[str, Waiting]]:
    """The state and the waiting notices of each hook. A watcher may use the file at the same time.

    Raises:
        UnreadableError: it is not an alert store, or it has another version.
    """
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return State(), {}
    with closing(open_file(path, ours=False)) as database, readable_errors(path):
        return State(alerts=_alerts(database)), _waiting(database)


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


def _readable_row(body: bytes) -> LogRow | None:
    try:
        return read_log_row(body)
    except NO_RECORD:
        return None


def _alerts(database: sqlite3.Connection) -> dict[str, Alert]:
    bodies = database.execute("SELECT body FROM alerts ORDER BY fingerprint")
    return {alert.fingerprint: alert for alert in (read_alert(body) for (body,) in bodies)}
