"""An alert: its labels, its phase, and its text in the alert store.

          found               found for `for`             absent for `keep_firing_for`
    o ----------> pending ---------------------> firing ----------------------------> resolved --> forgotten
                     |                           ^    |                                  |
                     | absent                    +----+ found, or absent for less        | found again
                     v                                                                   v
                     o                                                                pending

An alert is identified by its fingerprint: a hash of labels that do not change while the problem lasts. These are kind,
run, attempt, and the place. Steps, numbers and the current severity are not labels.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from diagnose.alerts.onset import Onset
from diagnose.alerts.quiet import Quiet
from diagnose.findings import Basis, Finding, Kind, Severity
from diagnose.ranges import fold_ranks, list_some, name_some

MOST_RANKS = 8
"""Largest number of ranks in a label. A problem with more ranks is identified by its hosts or its stage."""
MOST_HOSTS = 4
MOST_REMEMBERED = 64
"""Number of ranks, and of hosts, that are stored to recognize later findings of the same problem."""
URGENCY = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}
STANDING = frozenset({Kind.HUNG_COLLECTIVE, Kind.DEAD_RANK, Kind.COLLECTIVE_MISMATCH})
"""Kinds of a stalled job. They describe the current state of ranks, not steps."""
OF_HOSTS = frozenset({Kind.NIC_FLAP, Kind.GPU_THROTTLED, Kind.GPU_ERROR, Kind.HOST_CONTENTION, Kind.UNLIKE_HOST})
"""Kinds based on host data. The page of the hosts shows them."""
OUTLASTING = STANDING | {Kind.NIC_FLAP, Kind.GPU_ERROR, Kind.LOSS_ANOMALY, Kind.JOB_RESTARTED}
"""Kinds that can explain why a run died. The others describe its speed, and end with it."""
NO_NAMES: Mapping[str, str] = {}
STORED_NAMES = {
    "sent_severity": "told",
    "num_hosts_sent": "num_hosts_told",
    "sent_ns": "told_ns",
    "suppressed_by": "held_back_by",
}
"""Field -> its name in stored text. Stored names never change."""
NO_RECORD = (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError)
"""Errors that occur if a text is not a valid record."""


class Phase(StrEnum):
    """Phase of an alert."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The newest finding of the problem: all values that may change from check to check."""

    severity: Severity
    summary: str
    next_step: str
    seconds_lost: float
    basis: Basis = Basis.MEASURED
    first_step: int
    last_step: int
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert between two checks. Times are wall clock, nanoseconds."""

    fingerprint: str
    labels: Mapping[str, str]
    """The labels of the fingerprint. Once the alert fires, also ``severity``: the severity when it began to fire."""
    phase: Phase
    account: Account
    ranks: tuple[int, ...]
    began_ns: int
    """When this problem was first found."""
    onset: Onset | None = None
    """When the problem began, as far as known. It is found later, at ``began_ns``."""
    changed_ns: int
    """When it entered its phase."""
    absent_ns: int = 0
    """Time of the first check that did not find it, if no later check found it. 0 if the last check found it."""
    returns_ns: tuple[int, ...] = ()
    """Times when it was found again after it was absent. Used for flap damping."""
    sharp: bool = False
    """Whether it had a finding with a known time (``Sighting.has_known_time``). Then findings without a known time do
    not keep it alive."""
    sent_severity: Severity | None = None
    """The worst severity that was sent for this problem. None: nothing was sent."""
    hosts_seen: tuple[str, ...] = ()
    """All hosts in findings of this problem so far. The labels contain only the first ones."""
    num_hosts_sent: int = 0
    """Length of ``hosts_seen`` when the last new notice was sent."""
    sent_ns: Mapping[str, int] = field(default_factory=dict)
    """Hook -> when a notice of this problem was last sent to it."""
    raised_ns: int = 0
    """When it began to fire; 0 before that. With the fingerprint it identifies the finding in the log, so it is not
    corrected if the clock is set back by less than a day."""
    worst: Severity = Severity.INFO
    """The worst severity since it began to fire."""
    quiet: Quiet | None = None
    """Whether people acknowledged or silenced it, as far as known. None: they did not."""
    suppressed_by: str = ""
    """Fingerprint of the alert that explains it and suppresses it. Empty: it is not suppressed."""

    @property
    def kind(self) -> str:
        return self.labels["alertname"]

    @property
    def run(self) -> tuple[str, int]:
        """Run and attempt."""
        return self.labels["run_id"], int(self.labels["attempt"])

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(self.labels["host"].split(",")) if "host" in self.labels else frozenset()

    @property
    def has_spread(self) -> bool:
        """Whether it affects at least twice as many hosts as at the last notice. So the number of notices is small."""
        return len(self.hosts_seen) >= 2 * max(1, self.num_hosts_sent)

    @property
    def is_alive(self) -> bool:
        return self.phase is not Phase.RESOLVED

    @property
    def since_ns(self) -> int:
        """When the problem began: its onset, but at most the time when the alert fired. If the onset is not known, the
        time when the alert fired. A pending alert has not fired, so the time when it was first found is used instead.
        The findings log shows the same time."""
        known_ns = self.raised_ns or self.began_ns
        return min(self.onset.at_ns, known_ns) if self.onset and self.onset.at_ns else known_ns


def labels_of(finding: Finding, run_id: str, attempt: int) -> dict[str, str]:
    """Labels that stay the same from check to check.

    A single rank is named with its host. For several ranks of one host, only the host is named, because the ranks in
    findings vary. For ranks on several hosts, the ranks are named too, if there are at most ``MOST_RANKS``. The stage
    is named if no rank or host is.
    """
    labels = {"alertname": str(finding.kind), "run_id": run_id, "attempt": str(attempt)}
    ranks, hosts = finding.ranks, finding.hosts
    if 0 < len(hosts) <= MOST_HOSTS:
        labels["host"] = ",".join(hosts)
    if len(ranks) == 1 or (1 < len(ranks) <= MOST_RANKS and len(hosts) != 1):
        labels["rank"] = fold_ranks(ranks).replace(" ", "")
    device = finding.evidence.get("device")
    if isinstance(device, str | int) and str(device):
        labels["device"] = str(device)
    if finding.stage and "host" not in labels and "rank" not in labels:
        labels["stage"] = finding.stage
    return labels


def fingerprint_of(labels: Mapping[str, str]) -> str:
    """16 hexadecimal digits, a hash of the labels without ``severity``."""
    text = "\n".join(f"{name}={value!r}" for name, value in sorted(labels.items()) if name != "severity")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def account_of(finding: Finding) -> Account:
    """The values of a finding that may change from check to check."""
    details = {"detector": finding.detector, "confidence": f"{finding.confidence:.2f}"}
    if len(finding.ranks) > 1:
        details["ranks"] = name_some(finding.ranks)
    if len(finding.hosts) > 1:
        details["hosts"] = list_some(finding.hosts, MOST_REMEMBERED)
    if finding.stage:
        details["stage"] = finding.stage
    return Account(
        severity=finding.severity,
        summary=finding.headline,
        next_step=finding.next_step,
        seconds_lost=finding.seconds_lost,
        basis=finding.basis,
        first_step=finding.window.first_step,
        last_step=finding.window.last_step,
        details=details,
    )


def alert_text(alert: Alert) -> str:
    records = {name: value and values_of(value) for name, value in (("onset", alert.onset), ("quiet", alert.quiet))}
    return record_text(values_of(alert, STORED_NAMES) | records | {"account": values_of(alert.account)})


def read_alert(text: str) -> Alert:
    """The inverse of :func:`alert_text`.

    Raises:
        Exception: the text is not an alert; see ``NO_RECORD``.
    """
    values = named_as_fields(json.loads(text), STORED_NAMES)
    account = values["account"]
    alert = Alert(
        **{
            **values,
            "phase": Phase(values["phase"]),
            "account": Account(
                **{
                    **account,
                    "severity": Severity(account["severity"]),
                    "basis": Basis(account.get("basis", Basis.MEASURED)),
                }
            ),
            "ranks": tuple(values["ranks"]),
            "onset": Onset.parse(values["onset"]) if values.get("onset") else None,
            "worst": Severity(values.get("worst", Severity.INFO)),
            "quiet": Quiet(**values["quiet"]) if values.get("quiet") else None,
            "returns_ns": tuple(values["returns_ns"]),
            "hosts_seen": tuple(values.get("hosts_seen", ())),
            "sent_severity": None if values["sent_severity"] is None else Severity(values["sent_severity"]),
        }
    )
    _ = alert.kind, alert.run  # missing labels raise here, not at their use
    return alert


def values_of(record: Any, stored_names: Mapping[str, str] = NO_NAMES) -> dict[str, Any]:
    """Fields of a record. They are not copied: a deep copy of ten thousand records would take seconds."""
    return {stored_names.get(field.name, field.name): getattr(record, field.name) for field in fields(record)}


def named_as_fields(values: dict[str, Any], stored_names: Mapping[str, str]) -> dict[str, Any]:
    """The stored values, with each stored name replaced by the name of its field."""
    fields_of = {stored: name for name, stored in stored_names.items()}
    return {fields_of.get(name, name): value for name, value in values.items()}


def record_text(values: dict[str, Any]) -> str:
    return json.dumps(values, separators=(",", ":"))
