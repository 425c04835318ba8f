"""Alerts and notices as the text that the ledger keeps."""

import json
from dataclasses import fields
from typing import Any

from diagnose.alerts.alert import Account, Alert, Phase
from diagnose.alerts.notice import Notice, Status
from diagnose.findings import Severity

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
