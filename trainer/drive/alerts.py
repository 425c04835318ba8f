"""Findings from the alerts in the body of a webhook, which has the shape of Alertmanager's version 4.

    {"alerts": [{"status": "firing", "labels": {"alertname": ..., "run_id": ..., "attempt": ..., "host": ...},
                 "annotations": {"summary": ..., "details": "steps: 12-15\\nhosts: node-1, node-2"}}, ...]}

Alertmanager can group alerts of other sources into the same body. So each alert is read alone.
"""

import json
from collections.abc import Mapping
from typing import Any

from telemetry.errors import UsageError
from trainer.drive.records import Finding

REQUIRED = ("alertname", "run_id", "attempt")
"""Labels of an alert about a run."""
MAX_DIGITS = 15
"""Numbers in an alert have fewer digits than this."""


def findings_in(body: bytes) -> tuple[list[Finding], list[UsageError]]:
    """The findings in a body, and an error for each alert in it that is no finding.

    Raises:
        UsageError: the body has another shape, or none of its alerts is a finding.
    """
    try:
        alerts = json.loads(body)["alerts"]
    except (KeyError, TypeError, ValueError) as error:
        raise _no_alerts() from error
    if not isinstance(alerts, list):
        raise _no_alerts()
    found: list[Finding] = []
    refused: list[UsageError] = []
    for number, alert in enumerate(alerts):
        try:
            found.append(_finding(alert, f"alert {number}"))
        except UsageError as error:
            refused.append(error)
    if refused and not found:
        raise refused[0]
    return found, refused


def _no_alerts() -> UsageError:
    return UsageError("no alerts in the body", hint='send {"alerts": [...]}')


def _finding(alert: Any, place: str) -> Finding:
    """Raises:
    UsageError: it is no alert about a run.
    """
    alert = _table(alert, place)
    labels = _table(alert.get("labels"), f"the labels of {place}")
    annotations = _table(alert.get("annotations") or {}, f"the annotations of {place}")
    missing = [name for name in REQUIRED if name not in labels]
    if missing:
        raise UsageError(
            f"{place} has no label {', '.join(missing)}", hint="send only alerts of rankscope to the driver"
        )
    details = dict(line.partition(": ")[::2] for line in str(annotations.get("details", "")).splitlines())
    return Finding(
        kind=str(labels["alertname"]),
        run_id=str(labels["run_id"]),
        attempt=_attempt(labels["attempt"], place),
        hosts=_hosts(labels, details),
        summary=str(annotations.get("summary", "")),
        active=str(alert.get("status", "firing")) == "firing",
        first_step=_first_step(details.get("steps", "")),
    )


def _table(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{place} must be a table", hint="see docs/guides/alert-hooks.md")
    return value


def _attempt(value: Any, place: str) -> int:
    number = _number(str(value))
    if number is None:
        raise UsageError(f"the label attempt of {place} must be a whole number", hint="use 0 for the first attempt")
    return number


def _hosts(labels: Mapping[str, Any], details: Mapping[str, str]) -> tuple[str, ...]:
    """Up to four hosts are in a label. If there are more, they are in the details, one line for each name."""
    text = labels.get("host") or details.get("hosts", "")
    return tuple(host.strip() for host in str(text).split(",") if host.strip())


def _first_step(steps: str) -> int:
    """The first step of a text such as ``12-15``; -1 for another text."""
    number = _number(steps.partition("-")[0])
    return -1 if number is None else number


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < MAX_DIGITS else None
