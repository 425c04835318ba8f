"""When findings of a kind become alerts, and who is told: values, checked by ``settings.py``."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from diagnose.findings import Kind, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What holds for one kind of finding."""

    for_s: float
    """Seen so long before it fires. Detectors ask for persistence over steps themselves: this is against flicker."""
    keep_firing_for_s: float
    """Not seen for so long before it is over; ten steps at the least."""
    severity: Severity = Severity.WARNING
    """Findings below it begin no alert. One that lives is not ended by a finding that is less severe today."""
    hooks: tuple[str, ...] = ()
    """Who is told; nobody: neither told, nor does it hold back others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flapping:
    """Flap damping: what came back ``times`` within ``within_s`` is over only after ``quiet_s``."""

    times: int = 3
    within_s: float = 1800.0
    quiet_s: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All that the state machine goes by."""

    rules: Mapping[str, Rule]
    """Kind -> its rule."""
    flapping: Flapping = field(default_factory=Flapping)
    resend_s: Mapping[str, float] = field(default_factory=dict)
    """Every hook there is -> while an alert fires, tell it again after so long; 0: never."""
    dashboard: str = ""
    """Address that links lead to; empty: no links."""

    def rule(self, kind: str) -> Rule:
        """The rule of a kind; of one that this version does not know, a cautious one that tells nobody."""
        return self.rules.get(kind, _UNKNOWN)


_UNKNOWN = Rule(for_s=60, keep_firing_for_s=60)

DEFAULTS: Mapping[Kind, Rule] = {
    # What is certain at once, and dear: no waiting.
    Kind.NIC_FLAP: Rule(for_s=0, keep_firing_for_s=300),
    Kind.GPU_ERROR: Rule(for_s=0, keep_firing_for_s=300),
    Kind.DEAD_RANK: Rule(for_s=0, keep_firing_for_s=60),
    Kind.HUNG_COLLECTIVE: Rule(for_s=0, keep_firing_for_s=60),
    Kind.COLLECTIVE_MISMATCH: Rule(for_s=0, keep_firing_for_s=60),
    Kind.LOSS_ANOMALY: Rule(for_s=0, keep_firing_for_s=300),
    # Seen at a checkpoint, and not again before the next one.
    Kind.CHECKPOINT_SLOW: Rule(for_s=0, keep_firing_for_s=1800),
    # Told from six steps on: a second look a little later, and still within 20 steps of a second each.
    Kind.COMPUTE_STRAGGLER: Rule(for_s=2, keep_firing_for_s=60),
    Kind.SLOW_LINK: Rule(for_s=2, keep_firing_for_s=60),
    Kind.GPU_THROTTLED: Rule(for_s=5, keep_firing_for_s=120),
    Kind.HOST_CONTENTION: Rule(for_s=5, keep_firing_for_s=60),
    Kind.DATA_STALL: Rule(for_s=5, keep_firing_for_s=120),
    Kind.LATE_LAUNCH: Rule(for_s=10, keep_firing_for_s=120),
    # Properties of the job rather than events.
    Kind.STAGE_IMBALANCE: Rule(for_s=60, keep_firing_for_s=300),
    Kind.DATA_IMBALANCE: Rule(for_s=60, keep_firing_for_s=300),
    Kind.MFU_DECLINE: Rule(for_s=60, keep_firing_for_s=300),
    Kind.UNLIKE_HOST: Rule(for_s=60, keep_firing_for_s=300),
    Kind.INSUFFICIENT_EVIDENCE: Rule(for_s=60, keep_firing_for_s=60),
}
"""What holds where the file says nothing."""
