"""Passes silences on to Alertmanager (API v2, ``/api/v2/silences``).

This module keeps at most one silence for each alert. The comment of the silence begins with ``rankscope FINGERPRINT:``.
Each notice looks the silence up again. So this process keeps no state, and a notice that is sent twice makes no second
silence. Silences of people are not changed.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from diagnose.alerts.hooks.interface import HookError
from diagnose.alerts.hooks.post import Receiver
from diagnose.alerts.hooks.shape import as_utf8, label_name, stamp
from diagnose.alerts.notice import NS_PER_S, Notice

PLACES = ("host", "rank", "device", "stage")
LEAST_SHARE = 0.5
"""A silence is extended if less than this share of the wanted time is left. The alert is sent again each minute."""
NOT_OFFERED = 501
MAY_ACCEPT_LATER = (408, 425, 429, 500)
"""Statuses from 400 to NOT_OFFERED after which the same request may be accepted later."""
OPEN_STATES = ("active", "pending")
NOT_IDENTITY = "severity"
"""This label can change, so it is not a part of the identity of an alert."""


def matchers_of(labels: Mapping[str, str]) -> dict[str, str]:
    """Label -> value for the matchers of a silence. No other alert matches all of them.

    A label in ``PLACES`` that the alert does not have gets the value "", which matches an absent label.
    """
    absent = dict.fromkeys(PLACES, "")
    return absent | {label_name(name): value for name, value in sorted(labels.items()) if name != NOT_IDENTITY}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A silence in Alertmanager."""

    silence_id: str
    starts_at: str
    ends_ns: int


class Silences:
    """The silences in an Alertmanager. For one thread.

    Args:
        every: ``/api/v2/silences``.
        single: ``/api/v2/silence``.
    """

    def __init__(self, every: Receiver, single: Receiver) -> None:
        self._every = every
        self._single = single

    def apply(self, notice: Notice, labels: Mapping[str, str]) -> None:
        """Make Alertmanager silence the alert until ``notice.silence.ends_ns``. If that time is over, end the silence.

        No error if Alertmanager refuses this for good: the alert is sent without a silence. A proxy may forward
        ``/api/v2/alerts`` only, and one acknowledged alert must not hold back all others.

        Raises:
            HookError: Alertmanager does not answer, or has an error; a retry may help.
        """
        assert notice.silence is not None
        try:
            self._apply(notice, matchers_of(labels))
        except HookError as error:
            is_refused = 400 <= error.status <= NOT_OFFERED and error.status not in MAY_ACCEPT_LATER
            if error.again and not is_refused:
                raise

    def _apply(self, notice: Notice, matchers: Mapping[str, str]) -> None:
        now_ns = time.time_ns()
        ends_ns = notice.silence.ends_ns if notice.silence else 0
        known = self._known(notice.fingerprint, matchers)
        if ends_ns <= now_ns:
            for silence in known:
                self._single.delete(silence.silence_id)
        elif not known:
            self._every.post(_body(notice, matchers, starts_at=stamp(now_ns)))
        elif known[0].ends_ns - now_ns < LEAST_SHARE * (ends_ns - now_ns) or known[0].ends_ns > ends_ns + NS_PER_S:
            # too short, or longer than people want
            body = _body(notice, matchers, starts_at=known[0].starts_at)
            self._every.post({**body, "id": known[0].silence_id})

    def _known(self, fingerprint: str, matchers: Mapping[str, str]) -> list[_Known]:
        """The silences of this alert that this program made and that are not over."""
        named = [("filter", f'{name}="{escaped(value)}"') for name, value in matchers.items() if value]
        found = self._every.get(named)
        if not isinstance(found, list):
            raise HookError("the answer to a query for silences is not a list", again=False)
        return [known for silence in found if (known := _read(silence, fingerprint)) is not None]


def _read(silence: Any, fingerprint: str) -> _Known | None:
    """The silence in an element of an answer, or None if it is over, made by people, or unreadable."""
    try:
        if not silence["comment"].startswith(_mark(fingerprint)) or silence["status"]["state"] not in OPEN_STATES:
            return None
        ends_ns = round(datetime.fromisoformat(silence["endsAt"]).timestamp() * NS_PER_S)
        return _Known(silence_id=str(silence["id"]), starts_at=str(silence["startsAt"]), ends_ns=ends_ns)
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
        return None


def _body(notice: Notice, matchers: Mapping[str, str], *, starts_at: str) -> dict[str, object]:
    silence = notice.silence
    assert silence is not None
    return {
        "matchers": [
            {"name": name, "value": as_utf8(value), "isRegex": False, "isEqual": True}
            for name, value in matchers.items()
        ],
        "startsAt": starts_at,
        "endsAt": stamp(silence.ends_ns),
        "createdBy": as_utf8(silence.who) or "rankscope",
        "comment": as_utf8(f"{_mark(notice.fingerprint)} {silence.text}".rstrip()),
    }


def _mark(fingerprint: str) -> str:
    return f"rankscope {fingerprint}:"


def escaped(value: str) -> str:
    """``value``, escaped for use between the quotes of a matcher."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
