"""Hook for Alertmanager's API v2: version 0.16 or newer, tested with 0.25. ``silences.py`` passes silences on.

In Alertmanager an alert is identified by its labels. It ends when it is posted with an end, or when it is not posted
for ``resolve_timeout`` (five minutes by default). So firing alerts are sent again every minute.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

import pydantic
from pydantic import SecretStr

from diagnose.alerts.hooks.keys import MAY_BE_PLAIN, Batch, Seconds, read_keys
from diagnose.alerts.hooks.post import Receiver
from diagnose.alerts.hooks.shape import annotations_of, labels_of, link_of, stamp
from diagnose.alerts.hooks.silences import Silences
from diagnose.alerts.notice import Notice, Status

ALERTS = "/api/v2/alerts"
LabelName = Annotated[str, pydantic.Field(pattern="^[a-zA-Z_][a-zA-Z0-9_]*$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertmanagerKeys:
    """``[hooks.NAME]`` with ``type = "alertmanager"``."""

    url: SecretStr = field(metadata=MAY_BE_PLAIN)
    """Address of its web page: ``http://host:9093``, with its prefix if it has one."""
    token: SecretStr | None = None
    """Bearer token, if a proxy in front of it needs one."""
    labels: Mapping[LabelName, str] = field(default_factory=dict)
    """Added to every alert: ``cluster``, ``team``. An alert's own labels win."""
    resend_s: Annotated[float, pydantic.Field(gt=0, allow_inf_nan=False)] = 60.0
    """Must be clearly shorter than Alertmanager's ``resolve_timeout``."""
    batch: Batch = 200
    timeout_s: Seconds = 10.0


class AlertmanagerHook:
    """Posts alerts to ``/api/v2/alerts``, and silences before the alerts that they are about."""

    passes_silences = True

    def __init__(self, name: str, table: Mapping[str, object]) -> None:
        keys = read_keys(AlertmanagerKeys, name, table)
        self.name = name
        self.resend_s = keys.resend_s
        self.batch = keys.batch
        self._labels = keys.labels
        receiver = partial(Receiver, name, token=keys.token, timeout_s=keys.timeout_s)
        site = SecretStr(keys.url.get_secret_value().removesuffix(ALERTS))
        self._receiver = receiver(site, path=ALERTS)
        self._silences = Silences(receiver(site, path="/api/v2/silences"), receiver(site, path="/api/v2/silence"))

    def send(self, notices: Sequence[Notice]) -> None:
        """Send only the newest notice of each alert, because Alertmanager stores states, not events. Silences take a
        few requests each, so alerts without one are sent first."""
        newest = {notice.fingerprint: notice for notice in notices}.values()
        self._post([notice for notice in newest if notice.silence is None])
        quiet = [notice for notice in newest if notice.silence is not None]
        for notice in quiet:
            self._silences.apply(notice, {**self._labels, **labels_of(notice)})
        self._post(quiet)

    def _post(self, notices: Sequence[Notice]) -> None:
        if notices:
            self._receiver.post([alertmanager_alert(notice, self._labels) for notice in notices])


def alertmanager_alert(notice: Notice, more_labels: Mapping[str, str]) -> dict[str, object]:
    """``notice`` as an element of the list for ``/api/v2/alerts``."""
    alert: dict[str, object] = {
        "labels": {**more_labels, **labels_of(notice)},
        "annotations": annotations_of(notice),
        "startsAt": stamp(notice.starts_ns),
        "generatorURL": link_of(notice),
    }
    if notice.status is Status.RESOLVED:
        alert["endsAt"] = stamp(max(notice.starts_ns, notice.ends_ns))
    return alert
