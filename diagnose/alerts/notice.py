"""A notice: one alert at one moment of its life, in a form that every hook can send.

    finding --rules--> alert (state machine) --outbox--> Notice --hook--> Alertmanager, PagerDuty, Slack, a command ...

Labels identify an alert and never change while it lives; numbers and words that change stand beside them.

``Complaints`` reports errors of the watcher itself once each: when they begin and when they end.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from diagnose.findings import Severity

Say = Callable[[str], None]
"""Tells people a line: standard error."""


class Complaints:
    """What is wrong now, by its name. For any thread. Where ``say`` raises, nobody can be told of that either."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._standing: dict[str, str] = {}

    def tell(self, text: str) -> None:
        """Something that happens once."""
        with suppress(Exception):
            self._say(text)

    def begin(self, name: str, text: str) -> None:
        """``text`` is wrong. Told unless it was said last time, too."""
        with self._lock:
            if self._standing.get(name) == text:
                return
            self._standing[name] = text
        self.tell(text)

    def end(self, name: str, text: str) -> None:
        """``name`` is well again. Told if something was wrong."""
        with self._lock:
            was_wrong = self._standing.pop(name, None) is not None
        if was_wrong:
            self.tell(text)

    def forget_all_but(self, prefix: str, names: frozenset[str]) -> None:
        """Those under ``prefix`` that are not among ``names`` are of no interest any more."""
        with self._lock:
            for name in [name for name in self._standing if name.startswith(prefix) and name not in names]:
                del self._standing[name]


class Status(StrEnum):
    """What a notice says of its alert."""

    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing to tell. Hooks get those of one fingerprint in order of ``number``, each at least once."""

    fingerprint: str
    """16 hexadecimal digits over the labels: the same alert after a restart has the same."""
    number: int
    """Counts the notices of all alerts upwards: a receiver may tell a repetition by (fingerprint, number)."""
    status: Status
    repeated: bool
    """Whether people were told before, and this only says that it lasts."""
    labels: Mapping[str, str]
    """``alertname`` (kind of finding), ``severity``, ``run_id``, ``attempt``, and where they are known ``host``,
    ``rank``, ``device``, ``stage``. Values are text, names fit Prometheus."""
    severity: Severity
    summary: str
    """One line: what, which rank and host, since when."""
    cost: str
    """``12.7 s lost so far``; empty where it costs nothing yet."""
    next_step: str
    link: str
    """Dashboard view of the run and window; empty where no address is set."""
    starts_ns: int
    """Wall clock: when the trouble was first seen."""
    ends_ns: int
    """Wall clock: when it was over; 0 while it is not."""
    told_ns: int
    """Wall clock: when this was to be told. How long it has waited for a hook counts from here."""
    details: Mapping[str, str]
    """Further words by name: steps, victims, what it explains."""
