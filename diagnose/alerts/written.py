"""Alerts and notices as the text in the alert store, and errors of its file in words for the user.

disk full or faulty, file locked by another process     may recover: keep the file
no alert store, damaged, or unreadable                  another file is needed
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from diagnose.alerts.alert import Account, Alert, Phase
from diagnose.alerts.notice import Notice, Status
from diagnose.findings import Severity
from telemetry.errors import UnreadableError

NO_RECORD = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What reading raises where a text is something else."""


def alert_text(alert: Alert) -> str:
    return _text({**_values(alert), "account": _values(alert.account)})


def read_alert(text: str) -> Alert:
    """The inverse of :func:`alert_text`.

    Raises:
        Exception: whatever comes of text that is no alert; see ``NO_RECORD``.
    """
    given: dict[str, Any] = json.loads(text)
    account = given["account"]
    alert = Alert(
        **{
            **given,
            "phase": Phase(given["phase"]),
            "account": Account(**{**account, "severity": Severity(account["severity"])}),
            "ranks": tuple(given["ranks"]),
            "returns_ns": tuple(given["returns_ns"]),
            "hosts_seen": tuple(given.get("hosts_seen", ())),
            "told": None if given["told"] is None else Severity(given["told"]),
        }
    )
    _ = alert.kind, alert.run  # what nobody could place is told here, not where it is needed
    return alert


def notice_text(notice: Notice) -> str:
    return _text(_values(notice))


def read_notice(text: str) -> Notice:
    """The inverse of :func:`notice_text`."""
    given: dict[str, Any] = json.loads(text)
    given.setdefault("told_ns", max(given["starts_ns"], given["ends_ns"]))
    return Notice(**{**given, "status": Status(given["status"]), "severity": Severity(given["severity"])})


def _values(record: Any) -> dict[str, Any]:
    """Its fields as they are: a copy of ten thousand records in depth would take seconds."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _text(values: dict[str, Any]) -> str:
    return json.dumps(values, separators=(",", ":"))


MOVE_IT = "move it away, or name another file: --state FILE"
_OF_THE_DISK = {
    sqlite3.SQLITE_FULL: "free disk space; the saved alerts are kept",
    sqlite3.SQLITE_IOERR: "check whether the disk is full or faulty; the saved alerts are kept",
    sqlite3.SQLITE_READONLY: "check that this user may write there and that the disk is not mounted read-only",
    sqlite3.SQLITE_PERM: "check that this user may read and write there",
    sqlite3.SQLITE_CANTOPEN: "check that it is a file, and that this user may read and write it and its folder",
    sqlite3.SQLITE_BUSY: "another process uses it: retry",
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
        what = "cannot be used" if hint else "is not an alert state file"
        raise UnreadableError(f"{path} {what}: {error}", hint=hint or MOVE_IT) from error
    except NO_RECORD as error:
        told = f"{type(error).__name__}: {error}"
        raise UnreadableError(f"{path} holds an alert that cannot be read: {told}", hint=MOVE_IT) from error
