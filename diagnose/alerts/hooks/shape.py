"""Notices in the format of Alertmanager's webhooks (version 4), which many receivers can read.

    {receiver, status, groupKey, groupLabels, commonLabels, commonAnnotations, externalURL, version: "4",
     truncatedAlerts, alerts: [{status, labels, annotations, startsAt, endsAt, generatorURL, fingerprint}, ...]}

The labels of a group are the labels that all its alerts have in common. A body with one alert is its own group, as with
``group_by: ['...']``. Then ``groupKey`` identifies the alert.

This module also removes secrets and characters that receivers cannot read. For one line, see ``telemetry.printable``.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import urlsplit

from diagnose.alerts.notice import Notice, Status

SHORTEST_SECRET = 4
"""Shorter texts are not treated as secrets, because they would match too many parts of a message."""


def as_utf8(text: str) -> str:
    """``text`` without lone surrogates and NUL, so that all receivers can read it."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def without(secrets: Iterable[str], text: str) -> str:
    """``text`` with each secret replaced by ``***``, the longest first."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return text


Body = dict[str, object]
NOT_OVER = "0001-01-01T00:00:00Z"
"""A time that is not set, as Go formats it."""
_STRANGE = re.compile(r"[^a-zA-Z0-9_]")


def v4_body(receiver: str, notices: Sequence[Notice]) -> Body:
    """The body of a webhook with ``notices`` (at least one)."""
    assert notices
    alerts = [_alert(notice) for notice in notices]
    common = _common([labels_of(notice) for notice in notices])
    firing = any(notice.status is Status.FIRING for notice in notices)
    return {
        "receiver": receiver,
        "status": str(Status.FIRING if firing else Status.RESOLVED),
        "alerts": alerts,
        "groupLabels": common,
        "commonLabels": common,
        "commonAnnotations": _common([annotations_of(notice) for notice in notices]),
        "externalURL": _site(link_of(notices[-1])),
        "version": "4",
        "groupKey": "{}:{" + ", ".join(f"{name}={json.dumps(common[name])}" for name in sorted(common)) + "}",
        "truncatedAlerts": 0,
    }


def labels_of(notice: Notice) -> dict[str, str]:
    """Labels that Alertmanager 0.25 accepts: no dots or dashes in names, no empty values."""
    return {label_name(name): as_utf8(value) for name, value in notice.labels.items() if value}


def annotations_of(notice: Notice) -> dict[str, str]:
    """Texts of a notice for people, without empty ones."""
    details = "\n".join(f"{name}: {text}" for name, text in notice.details.items())
    texts = {"summary": notice.summary, "cost": notice.cost, "next_step": notice.next_step, "details": details}
    return {name: as_utf8(text) for name, text in texts.items() if text}


def label_name(name: str) -> str:
    """``name`` as a label name of Prometheus: letters, digits and underscores, no digit at the start."""
    legal = _STRANGE.sub("_", name)
    return f"_{legal}" if not legal or legal[0].isdigit() else legal


def link_of(notice: Notice) -> str:
    """The link of a notice. Empty if receivers would not accept it."""
    try:
        parts = urlsplit(notice.link)
    except ValueError:
        return ""
    plain = notice.link.isascii() and notice.link.isprintable() and " " not in notice.link
    return notice.link if plain and parts.scheme in ("http", "https") and parts.netloc else ""


def stamp(at_ns: int) -> str:
    """Wall clock as RFC 3339 to the nanosecond, in UTC."""
    seconds, fraction_ns = divmod(at_ns, 1_000_000_000)
    whole = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat()
    return f"{whole}.{fraction_ns:09d}".rstrip("0").rstrip(".") + "Z"


def _alert(notice: Notice) -> dict[str, object]:
    return {
        "status": str(notice.status),
        "labels": labels_of(notice),
        "annotations": annotations_of(notice),
        "startsAt": stamp(notice.starts_ns),
        "endsAt": NOT_OVER if notice.status is Status.FIRING else stamp(max(notice.starts_ns, notice.ends_ns)),
        "generatorURL": link_of(notice),
        "fingerprint": notice.fingerprint,
    }


def _common(each: Sequence[Mapping[str, str]]) -> dict[str, str]:
    first, *others = each
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}


def _site(link: str) -> str:
    parts = urlsplit(link)
    return f"{parts.scheme}://{parts.netloc}" if link else ""
