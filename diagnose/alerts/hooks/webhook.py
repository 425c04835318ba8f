"""Hook that posts bodies in the format of Alertmanager's webhooks (version 4). See ``shape.py``.

If an answer was lost, a receiver gets the same body twice, with the same ``Idempotency-Key``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote

from pydantic import SecretStr

from diagnose.alerts.hooks.keys import MAY_BE_PLAIN, Batch, ResendSeconds, Seconds, read_keys
from diagnose.alerts.hooks.post import Receiver
from diagnose.alerts.hooks.shape import Body, stamp, v4_body
from diagnose.alerts.notice import Notice, Status
from telemetry.errors import UsageError

CLOUD_EVENT = "application/cloudevents+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookKeys:
    """``[hooks.NAME]`` with ``type = "webhook"``."""

    url: SecretStr = field(metadata=MAY_BE_PLAIN)
    token: SecretStr | None = None
    """Sent as ``Authorization: Bearer``."""
    envelope: Literal["none", "cloudevents"] = "none"
    """``cloudevents``: the body is the ``data`` of a CloudEvent 1.0 in structured mode."""
    resend_s: ResendSeconds = 0.0
    batch: Batch = 1
    """Largest number of notices in a body. Use more than 1 only if the receiver processes all entries of ``alerts``."""
    timeout_s: Seconds = 10.0


class WebhookHook:
    """Posts bodies in version 4 of the format."""

    def __init__(self, name: str, table: Mapping[str, object]) -> None:
        keys = read_keys(WebhookKeys, name, table)
        if keys.envelope == "cloudevents" and keys.batch > 1:
            raise UsageError(f"hook {name}: a CloudEvent can contain only one notification", hint="remove batch")
        self.name = name
        self.resend_s = keys.resend_s
        self.batch = keys.batch
        self._enveloped = keys.envelope == "cloudevents"
        self._receiver = Receiver(name, keys.url, token=keys.token, timeout_s=keys.timeout_s)

    def send(self, notices: Sequence[Notice]) -> None:
        body = v4_body(self.name, notices)
        key = {"Idempotency-Key": f'"{_id_of(notices)}"'}
        if self._enveloped:
            self._receiver.post(cloud_event(notices[-1], body), content_type=CLOUD_EVENT, headers=key)
        else:
            self._receiver.post(body, headers=key)


def cloud_event(notice: Notice, body: Body) -> dict[str, object]:
    """``body`` as the data of a CloudEvent 1.0."""
    over = notice.status is Status.RESOLVED
    return {
        "specversion": "1.0",
        "id": _id_of([notice]),
        "source": f"/rankscope/runs/{quote(notice.labels.get('run_id', ''), safe='')}",
        "type": f"rankscope.alert.{notice.status}",
        "subject": notice.fingerprint,
        "time": stamp(notice.ends_ns if over else notice.starts_ns),
        "datacontenttype": "application/json",
        "data": body,
    }


def _id_of(notices: Sequence[Notice]) -> str:
    first, last = notices[0], notices[-1]
    return f"{last.fingerprint}-{last.number}" if first is last else f"{first.number}-{last.number}-{len(notices)}"
