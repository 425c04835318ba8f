"""A notice: the state of an alert when it is sent, in a form for all hooks, and its text.

    finding --rules--> alert (state machine) --outbox--> Notice --hook--> Alertmanager, PagerDuty, Slack, a command ...

Labels identify an alert and never change while it is active. Changing numbers and texts are separate fields.

``ErrorReports`` reports each error of the watcher itself twice: when it begins and when it ends.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlencode

from diagnose.alerts.alert import (
    OF_HOSTS,
    STANDING,
    Account,
    Alert,
    Phase,
    account_of,
    fingerprint_of,
    labels_of,
    named_as_fields,
    record_text,
    values_of,
)
from diagnose.findings import LEAST_COST_S, Finding, Kind, Role, Severity, StepWindow, Suspect, cost_in_words

NS_PER_S = 1_000_000_000
ACKNOWLEDGED_NS = 3600 * NS_PER_S
"""A silence for an acknowledgement ends after this time, unless it is extended."""
SAMPLE_NS = 60 * NS_PER_S
"""Age of the test alert."""

Say = Callable[[str], None]
"""Prints a line, for example to standard error."""


class ErrorReports:
    """Current errors of the watcher, by name. May be used by any thread. Errors of ``say`` are ignored."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._present: dict[str, str] = {}

    def report(self, text: str) -> None:
        """Report a single event."""
        with suppress(Exception):
            self._say(text)

    def begin(self, name: str, text: str) -> None:
        """Report an error, unless its last report had the same text."""
        with self._lock:
            if self._present.get(name) == text:
                return
            self._present[name] = text
        self.report(text)

    def end(self, name: str, text: str) -> None:
        """Report the end of an error, if there was one."""
        with self._lock:
            existed = self._present.pop(name, None) is not None
        if existed:
            self.report(text)

    def forget_all_but(self, prefix: str, names: frozenset[str]) -> None:
        """Forget errors under ``prefix`` that are not among ``names``."""
        with self._lock:
            for name in [name for name in self._present if name.startswith(prefix) and name not in names]:
                del self._present[name]


class Status(StrEnum):
    """State of the alert in a notice."""

    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """The receiver notifies nobody about the alert until ``ends_ns`` (wall clock). If that is 0, the silence ends."""

    ends_ns: int
    who: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One message. A hook gets the notices of a fingerprint in order of ``number``, each at least once."""

    fingerprint: str
    """16 hexadecimal digits, a hash of the labels. It does not change when the watcher restarts."""
    number: int
    """Consecutive number of all notices. If a notice is sent twice, (fingerprint, number) is the same."""
    status: Status
    repeated: bool
    """Whether the alert was sent before, and this notice only shows that it still fires."""
    labels: Mapping[str, str]
    """``alertname`` (kind of finding), ``severity``, ``run_id``, ``attempt``, and if known ``host``, ``rank``,
    ``device``, ``stage``. Values are text, names fit Prometheus."""
    severity: Severity
    summary: str
    """One line: the problem, its rank and host, and since when."""
    cost: str
    """``12.7 s lost so far``; ``12.7 s lost`` if it is resolved. Empty without a cost."""
    next_step: str
    link: str
    """Dashboard view of the run and window; empty if no address is set."""
    starts_ns: int
    """Wall clock: when the problem was first found."""
    ends_ns: int
    """Wall clock: when it ended; 0 before that."""
    created_ns: int
    """Wall clock: when the notice was created. Its waiting time begins here."""
    details: Mapping[str, str]
    """Further texts by name: steps, victims, detector."""
    silence: Silence | None = None
    """What people decided about the alert, for hooks that pass silences on. None if they decided nothing."""


STORED_NAMES = {"created_ns": "told_ns"}
"""Field -> its name in stored text, as in ``diagnose.alerts.alert.STORED_NAMES``."""


def notice_text(notice: Notice) -> str:
    silence = {"silence": notice.silence and values_of(notice.silence)}
    return record_text(values_of(notice, STORED_NAMES) | silence)


def read_notice(text: str) -> Notice:
    """The inverse of :func:`notice_text`.

    Raises:
        Exception: the text is not a notice; see ``diagnose.alerts.alert.NO_RECORD``.
    """
    values = named_as_fields(json.loads(text), STORED_NAMES)
    values.setdefault("created_ns", max(values["starts_ns"], values["ends_ns"]))
    silence = values.get("silence")
    types = {
        "status": Status(values["status"]),
        "severity": Severity(values["severity"]),
        "silence": Silence(**silence) if silence else None,
    }
    return Notice(**{**values, **types})


def notice_of(alert: Alert, status: Status, *, number: int, repeated: bool, now_ns: int, dashboard: str) -> Notice:
    """The notice of ``alert`` in its current state."""
    account = alert.account
    is_over = status is Status.RESOLVED
    ends_ns = (alert.absent_ns or now_ns) if is_over else 0
    return Notice(
        fingerprint=alert.fingerprint,
        number=number,
        status=status,
        repeated=repeated,
        labels=alert.labels,
        severity=account.severity,
        summary=resolved_text(alert, ends_ns) if is_over else f"{account.summary}; {_since(alert)}",
        cost=cost_of(account, is_over=is_over),
        next_step="" if is_over else account.next_step,
        link=_link_to(alert, dashboard),
        starts_ns=alert.began_ns,
        ends_ns=ends_ns,
        created_ns=now_ns,
        details={**account.details, "steps": f"{account.first_step}-{account.last_step}"},
        silence=_silence_of(alert, now_ns, is_over=is_over),
    )


def _since(alert: Alert) -> str:
    """``since step 600, 2026-11-27 14:03:20 UTC``. If the onset is not known: ``seen since`` and a time."""
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(alert.since_ns // NS_PER_S))
    if alert.onset is None:
        return f"seen since {at}"
    return f"since {alert.onset.in_words}, {at}" if alert.onset.at_ns else f"since {alert.onset.in_words}"


def _silence_of(alert: Alert, now_ns: int, *, is_over: bool) -> Silence | None:
    """The silence that a notice of ``alert`` passes on, or None if people decided nothing.

    An acknowledgement ends with the alert. Until then, each repetition of the notice extends the silence.
    """
    quiet = alert.quiet
    if quiet is None:
        return None
    acknowledged_ns = now_ns + ACKNOWLEDGED_NS if quiet.acknowledged and not is_over else 0
    ends_ns = max(quiet.silenced_until_ns, acknowledged_ns)
    return Silence(ends_ns=ends_ns if ends_ns > now_ns else 0, who=quiet.who, text=quiet.text)


def _link_to(alert: Alert, dashboard: str) -> str:
    """Address of the dashboard view with the run, its steps, and its rank or host. Empty if ``dashboard`` is empty."""
    if not dashboard:
        return ""
    rank = alert.labels.get("rank", "")
    run_id, attempt = alert.run
    view, host = view_of(alert)
    query = {
        "view": view,
        "run": run_id,
        "attempt": str(attempt),
        "steps": f"{alert.account.first_step}-{alert.account.last_step}",
        "rank": rank if rank.isdigit() else "",
        "host": host,
    }
    return f"{dashboard.rstrip('/')}/?{urlencode({name: value for name, value in query.items() if value})}"


def view_of(alert: Alert) -> tuple[str, str]:
    """The dashboard's view that shows the alert, and the host to select there (empty: none)."""
    return best_view(alert.kind, alert.labels.get("host", "").partition(",")[0])


def best_view(kind: str, host: str) -> tuple[str, str]:
    """The dashboard's view of a finding, and the host to select there. ``host`` is empty if the finding has no host."""
    if kind in STANDING:
        return "hang", ""
    return ("fleet", host) if host and kind in OF_HOSTS else ("overview", "")


def cost_of(account: Account, *, is_over: bool) -> str:
    """``12.7 s lost so far``; empty if it is negligible. It covers the steps that the last check examined.

    ``is_over``: the alert is resolved, so the cost does not grow: ``12.7 s lost``.
    """
    if account.seconds_lost < LEAST_COST_S:
        return ""
    return cost_in_words(account.seconds_lost, account.basis) + " so far" * (not is_over)


def resolved_text(alert: Alert, ends_ns: int) -> str:
    """The text of the notice that an alert ended: ``resolved after 12 min: rank 5 ...``."""
    return f"resolved after {duration_text((ends_ns - alert.since_ns) / 1e9)}: {alert.account.summary}"


def duration_text(seconds: float) -> str:
    """A duration in words: ``45 s``, ``12 min``, ``3.5 h``. Negative durations count as 0."""
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def sample_notices(now_ns: int, dashboard: str) -> tuple[Notice, Notice]:
    """A firing and a resolved notice for a test. Their text says that they are a test."""
    finding = Finding(
        detector="sample",
        kind=Kind.COMPUTE_STRAGGLER,
        severity=Severity.INFO,
        suspects=(Suspect(rank=5, host="sample-host", role=Role.INITIATING),),
        stage="backward-compute",
        window=StepWindow(first_step=100, last_step=140),
        seconds_lost=12.7,
        confidence=1.0,
        summary="test alert of `rankscope alerts test`, not a real problem: rank 5 (host sample-host) computes slowly",
        next_step="none: this is a test alert",
    )
    labels = labels_of(finding, f"sample-{now_ns // NS_PER_S}", 0)
    alert = Alert(
        fingerprint=fingerprint_of(labels),
        labels={**labels, "severity": str(finding.severity)},
        phase=Phase.FIRING,
        account=account_of(finding),
        ranks=(5,),
        began_ns=now_ns - SAMPLE_NS,
        changed_ns=now_ns,
    )
    return (
        notice_of(alert, Status.FIRING, number=1, repeated=False, now_ns=now_ns, dashboard=dashboard),
        notice_of(alert, Status.RESOLVED, number=2, repeated=False, now_ns=now_ns, dashboard=dashboard),
    )
