"""One alert: whom it is about, and where it stands in its life.

          seen                seen for `for`              quiet for `keep_firing_for`
    o ----------> pending ---------------------> firing ----------------------------> resolved --> forgotten
                     |                           ^    |                                  |
                     | quiet                     +----+ seen, or quiet for less          | seen again
                     v                                                                   v
                     o                                                                pending

Its identity is a fingerprint over labels that do not change while the trouble lasts: kind, run, attempt, and the place.
Steps, numbers and the present severity stand beside them.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from diagnose.findings import Finding, Kind, Severity
from diagnose.ranges import fold_ranks, list_some, name_some

MOST_RANKS = 8
"""Named in a label; a wider trouble is known by its hosts or its stage."""
MOST_HOSTS = 4
MOST_REMEMBERED = 64
"""Ranks by which a later finding is known to be about the same trouble."""
URGENCY = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}
STANDING = frozenset({Kind.HUNG_COLLECTIVE, Kind.DEAD_RANK, Kind.COLLECTIVE_MISMATCH})
"""Kinds of a job that stands still: about ranks as they are now, whatever the steps."""
OF_HOSTS = frozenset({Kind.NIC_FLAP, Kind.GPU_THROTTLED, Kind.GPU_ERROR, Kind.HOST_CONTENTION, Kind.UNLIKE_HOST})
"""Kinds that rest on what hosts told: there it shows."""


class Phase(StrEnum):
    """Where an alert stands."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the newest finding says of the trouble: all that may change from look to look."""

    severity: Severity
    summary: str
    next_step: str
    seconds_lost: float
    first_step: int
    last_step: int
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert between two looks. Times are wall clock, nanoseconds."""

    fingerprint: str
    labels: Mapping[str, str]
    """Those of the fingerprint and, while it fires, ``severity``: what it was when firing began."""
    phase: Phase
    account: Account
    ranks: tuple[int, ...]
    began_ns: int
    """When this trouble was first seen."""
    changed_ns: int
    """When it entered its phase."""
    absent_ns: int = 0
    """The first of the looks since then that did not show it; 0: the last one did."""
    returns_ns: tuple[int, ...] = ()
    """When it came back after looks that did not show it: what flap damping counts."""
    sharp: bool = False
    """Whether findings that tell when the trouble was have shown it: then vaguer ones do not keep it alive."""
    told: Severity | None = None
    """The worst severity that people were told of this trouble; None: they were told nothing."""
    hosts_seen: tuple[str, ...] = ()
    """All that findings of this trouble named so far; labels keep those that it began with."""
    num_hosts_told: int = 0
    """How many of them there were when people were last told something new."""
    told_ns: Mapping[str, int] = field(default_factory=dict)
    """Hook -> when it was last given a notice of this trouble."""
    held_back_by: str = ""
    """Fingerprint of the cause that keeps it from being told."""

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
        """Whether it has come to twice as many hosts as people know of: to hundreds of them in a few notices."""
        return len(self.hosts_seen) >= 2 * max(1, self.num_hosts_told)

    @property
    def is_alive(self) -> bool:
        return self.phase is not Phase.RESOLVED


def labels_of(finding: Finding, run_id: str, attempt: int) -> dict[str, str]:
    """Who is meant, in labels that stay the same from look to look.

    A rank with its host; several ranks of one host are that host, because which of them show varies; ranks on several
    hosts are named while they are few; the stage stands in where nobody is named.
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
    """16 hexadecimal digits over the labels but ``severity``."""
    text = "\n".join(f"{name}={value!r}" for name, value in sorted(labels.items()) if name != "severity")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def account_of(finding: Finding) -> Account:
    """What a finding says now."""
    details = {"detector": finding.detector, "confidence": f"{finding.confidence:.2f}"}
    if len(finding.ranks) > 1:
        details["ranks"] = name_some(finding.ranks)
    if len(finding.hosts) > 1:
        details["hosts"] = list_some(finding.hosts, MOST_REMEMBERED)
    if finding.stage:
        details["stage"] = finding.stage
    return Account(
        severity=finding.severity,
        summary=finding.summary,
        next_step=finding.next_step,
        seconds_lost=finding.seconds_lost,
        first_step=finding.window.first_step,
        last_step=finding.window.last_step,
        details=details,
    )
