"""A notice in the shape that Alertmanager gives its webhooks (version 4): what receivers of alerts already read.

    {receiver, status, groupKey, groupLabels, commonLabels, commonAnnotations, externalURL, version: "4",
     truncatedAlerts, alerts: [{status, labels, annotations, startsAt, endsAt, generatorURL, fingerprint}, ...]}

A group is what its alerts have in common. One alert a body is a group of its own, as with ``group_by: ['...']``: then
a receiver may tell incidents by ``groupKey`` too.

Words for receivers: text that each of them can read, without secrets. One line of it: ``telemetry.printable``.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import urlsplit

from diagnose.alerts.notice import Notice, Status

SHORTEST_SECRET = 4
"""What is shorter is no secret, and would blot out half of a message."""


def as_utf8(text: str) -> str:
    """``text`` as every receiver can read it: no lone surrogates, no NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def without(secrets: Iterable[str], text: str) -> str:
    """``text`` with every secret starred out, the longest first."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return text


Body = dict[str, object]
NOT_OVER = "0001-01-01T00:00:00Z"
"""How Go spells a time that is not set."""
_STRANGE = re.compile(r"[^a-zA-Z0-9_]")


def v4_body(receiver: str, notices: Sequence[Notice]) -> Body:
    """``notices``, at least one, as one body of a webhook."""
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
    """Labels as Alertmanager 0.25 takes them: no dots or dashes in names, no empty values."""
    return {label_name(name): as_utf8(value) for name, value in notice.labels.items() if value}


def annotations_of(notice: Notice) -> dict[str, str]:
    """What people read beside the labels; what is empty is left out."""
    details = "\n".join(f"{name}: {words}" for name, words in notice.details.items())
    told = {"summary": notice.summary, "cost": notice.cost, "next_step": notice.next_step, "details": details}
    return {name: as_utf8(words) for name, words in told.items() if words}


def label_name(name: str) -> str:
    """``name`` as a label of Prometheus: letters, digits and underscores, no digit first."""
    legal = _STRANGE.sub("_", name)
    return f"_{legal}" if not legal or legal[0].isdigit() else legal


def link_of(notice: Notice) -> str:
    """The notice's link, or nothing where it is none that a receiver would take."""
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
