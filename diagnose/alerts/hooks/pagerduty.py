"""Hook for PagerDuty's Events API v2. An alert becomes an incident, identified by its ``dedup_key``.

Each call sends one notice. So a retry does not open an incident again that was just resolved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import SecretStr

from diagnose.alerts.hooks.keys import MAY_BE_PLAIN, ResendSeconds, Seconds, read_keys
from diagnose.alerts.hooks.post import Receiver
from diagnose.alerts.hooks.shape import as_utf8, link_of, stamp
from diagnose.alerts.notice import Notice, Status
from diagnose.findings import Severity
from telemetry.printable import cut, one_line

EVENTS_URL = "https://events.pagerduty.com"
MAX_SUMMARY = 1024
MAX_KEY = 255
MAX_TEXT = 4096
"""Largest length of a detail. PagerDuty accepts events of up to 512 KiB."""
_LEVELS = {Severity.CRITICAL: "critical", Severity.WARNING: "warning", Severity.INFO: "info"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PagerDutyKeys:
    """``[hooks.NAME]`` with ``type = "pagerduty"``."""

    routing_key: SecretStr
    """Integration key of a service or an event orchestration."""
    url: SecretStr = field(default=SecretStr(EVENTS_URL), metadata=MAY_BE_PLAIN)
    """Address of the API. Another region: ``https://events.eu.pagerduty.com``."""
    resend_s: ResendSeconds = 0.0
    timeout_s: Seconds = 10.0


class PagerDutyHook:
    """Triggers and resolves incidents."""

    batch = 1

    def __init__(self, name: str, table: Mapping[str, object]) -> None:
        self._keys = read_keys(PagerDutyKeys, name, table)
        self.name = name
        self.resend_s = self._keys.resend_s
        self._receiver = Receiver(
            name,
            self._keys.url,
            path="/v2/enqueue",
            timeout_s=self._keys.timeout_s,
            secrets=[self._keys.routing_key],
        )

    def send(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            self._receiver.post({"routing_key": self._keys.routing_key.get_secret_value(), **pagerduty_event(notice)})


def pagerduty_event(notice: Notice) -> dict[str, object]:
    """``notice`` as an event, without the routing key."""
    key = cut(as_utf8(f"{notice.fingerprint}-{notice.labels.get('run_id', '')}"), MAX_KEY)
    if notice.status is Status.RESOLVED:
        return {"event_action": "resolve", "dedup_key": key}
    link = link_of(notice)
    return {
        "event_action": "trigger",
        "dedup_key": key,
        "payload": _payload(notice),
        "client": "rankscope",
        **({"client_url": link, "links": [{"href": link, "text": "dashboard"}]} if link else {}),
    }


def _payload(notice: Notice) -> dict[str, object]:
    labels = {name: as_utf8(value) for name, value in notice.labels.items() if value}
    details = {**labels, "cost": notice.cost, "next_step": notice.next_step, **notice.details}
    values = {
        "summary": one_line(notice.summary, MAX_SUMMARY),
        "source": labels.get("host") or labels.get("run_id") or "rankscope",
        "severity": _LEVELS[notice.severity],
        "timestamp": stamp(notice.starts_ns),
        "component": labels.get("device") or labels.get("stage", ""),
        "group": labels.get("run_id", ""),
        "class": labels.get("alertname", ""),
    }
    custom = {name: cut(as_utf8(text), MAX_TEXT) for name, text in details.items() if text}
    return {**{name: text for name, text in values.items() if text}, "custom_details": custom}
