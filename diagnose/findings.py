"""Findings, their suspects, and the kinds of finding."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

Evidence = Mapping[str, float | int | str | list[int] | list[float] | list[str]]


class Kind(StrEnum):
    """Kinds of finding. The enum grows; a kind is never renamed."""

    COMPUTE_STRAGGLER = "compute-straggler"
    STAGE_IMBALANCE = "stage-imbalance"
    DATA_IMBALANCE = "data-imbalance"
    LATE_LAUNCH = "late-launch"
    SLOW_LINK = "slow-link"
    DATA_STALL = "data-stall"
    NIC_FLAP = "nic-flap"
    GPU_THROTTLED = "gpu-throttled"
    GPU_ERROR = "gpu-error"
    HOST_CONTENTION = "host-contention"
    UNLIKE_HOST = "unlike-host"
    MFU_DECLINE = "mfu-decline"
    LOSS_ANOMALY = "loss-anomaly"
    CHECKPOINT_SLOW = "checkpoint-slow"
    ROLLOUT_TAIL = "rollout-tail"
    ROLE_IDLE = "role-idle"
    EXPERT_IMBALANCE = "expert-imbalance"
    HUNG_COLLECTIVE = "hung-collective"
    COLLECTIVE_MISMATCH = "collective-mismatch"
    DEAD_RANK = "dead-rank"
    JOB_RESTARTED = "job-restarted"
    INSUFFICIENT_EVIDENCE = "insufficient-evidence"


_IN_WORDS: Mapping[str, str] = {
    Kind.COMPUTE_STRAGGLER: "slow rank",
    Kind.STAGE_IMBALANCE: "unequal pipeline stages",
    Kind.DATA_IMBALANCE: "unequal microbatches",
    Kind.LATE_LAUNCH: "late launches",
    Kind.SLOW_LINK: "slow link",
    Kind.DATA_STALL: "waiting for data",
    Kind.NIC_FLAP: "link lost",
    Kind.GPU_THROTTLED: "throttled GPU",
    Kind.GPU_ERROR: "GPU error",
    Kind.HOST_CONTENTION: "busy host",
    Kind.UNLIKE_HOST: "host unlike the others",
    Kind.MFU_DECLINE: "longer steps",
    Kind.LOSS_ANOMALY: "abnormal loss",
    Kind.CHECKPOINT_SLOW: "slow checkpoints",
    Kind.ROLLOUT_TAIL: "long rollouts",
    Kind.ROLE_IDLE: "idle role",
    Kind.EXPERT_IMBALANCE: "unequal experts",
    Kind.HUNG_COLLECTIVE: "hung collective",
    Kind.COLLECTIVE_MISMATCH: "different collectives",
    Kind.DEAD_RANK: "dead rank",
    Kind.JOB_RESTARTED: "restarted job",
    Kind.INSUFFICIENT_EVIDENCE: "not enough evidence",
}


def kind_in_words(kind: str) -> str:
    """``slow rank`` for ``compute-straggler``. A kind of a newer version keeps its name."""
    return _IN_WORDS.get(kind, kind)


NOT_BY_COST = frozenset(
    {
        *(Kind.LOSS_ANOMALY, Kind.GPU_ERROR, Kind.NIC_FLAP, Kind.UNLIKE_HOST, Kind.CHECKPOINT_SLOW),
        *(Kind.HUNG_COLLECTIVE, Kind.COLLECTIVE_MISMATCH, Kind.DEAD_RANK, Kind.INSUFFICIENT_EVIDENCE),
        Kind.JOB_RESTARTED,
    }
)
"""Kinds whose severity does not follow from their cost. All others are found by comparison of durations."""
LEAST_COST_S = 0.05
"""A smaller cost is printed as 0.0 s."""
LEAST_SHARE = 0.0005
"""A smaller share is printed as 0.0%."""


class Basis(StrEnum):
    """What the cost of a finding was computed from."""

    MEASURED = "measured"
    """Time in which the job, or all ranks that depend on the suspect, waited or repeated work."""
    REPLAYED = "replayed"
    """The gain of a fix: the steps, replayed without the fault (``diagnose/whatif/cost.py``)."""
    EXCESS = "excess"
    """The time that the suspects take longer than their peers. The cost to the job is unknown."""


class Severity(StrEnum):
    """How soon someone should act: now, today, when convenient."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


def severity_of(share_of_step: float, *, least: Severity = Severity.INFO) -> Severity:
    """Severity by share of the step time: critical from 20%, warning from 5%, otherwise ``least``."""
    if share_of_step >= 0.2:
        return Severity.CRITICAL
    return Severity.WARNING if share_of_step >= 0.05 else least


class Role(StrEnum):
    """The role of a suspect. The headline names only initiating ranks."""

    INITIATING = "initiating"
    VICTIM = "victim"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWindow:
    """Steps of the window, both ends included."""

    first_step: int
    last_step: int

    @property
    def in_words(self) -> str:
        """The steps in words: ``step 8``, ``steps 8 to 12``."""
        if self.first_step == self.last_step:
            return f"step {self.first_step}"
        return f"steps {self.first_step} to {self.last_step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A suspected rank and its role."""

    rank: int
    host: str
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause: its ranks or host, its cost, and the next step."""

    detector: str
    kind: Kind
    severity: Severity
    suspects: tuple[Suspect, ...] = ()
    stage: str = ""
    """Label of the affected stage. Empty if there is none in particular."""
    window: StepWindow
    seconds_lost: float
    """Seconds over the window: the cost to the job, or the excess of the suspects, depending on ``basis``."""
    share_lost: float = 0.0
    """``seconds_lost`` as a share of the time of the affected steps. 0 for kinds that do not last over steps."""
    basis: Basis = Basis.MEASURED
    least_severity: Severity = Severity.INFO
    """The severity if it costs nothing now."""
    confidence: float
    """0 to 1."""
    summary: str
    """What was found, in one line, without its cost: see :attr:`headline`."""
    next_step: str
    evidence: Evidence = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """The summary with the cost. One line for the engineer on call."""
        if not self.share_lost and self.basis is not Basis.REPLAYED:
            return self.summary
        if self.basis is Basis.REPLAYED and self.share_lost < LEAST_SHARE:
            return f"{self.summary}; the cost to the job is zero in these steps"
        if self.basis is Basis.EXCESS:
            return f"{self.summary}; own excess {self.share_lost:.1%} of the step time; the cost to the job is unknown"
        return f"{self.summary}; costs {self.share_lost:.1%} of the step time"

    @property
    def cost(self) -> str:
        """The cost over the window: ``4.0 s lost in steps 100 to 299``."""
        return f"{cost_in_words(self.seconds_lost, self.basis)} in {self.window.in_words}"

    @property
    def ranks(self) -> list[int]:
        """The initiating ranks, ascending."""
        return sorted(suspect.rank for suspect in self.suspects if suspect.role is Role.INITIATING)

    @property
    def hosts(self) -> list[str]:
        """The known hosts of the initiating ranks. If there are none: the hosts in the evidence."""
        of_ranks = {suspect.host for suspect in self.suspects if suspect.role is Role.INITIATING} - {""}
        in_evidence = self.evidence.get("hosts")
        return sorted(of_ranks) or (sorted(map(str, in_evidence)) if isinstance(in_evidence, list) else [])


def cost_in_words(seconds: float, basis: Basis) -> str:
    """``4.0 s lost``, or ``own excess 4.0 s`` if the cost to the job is unknown."""
    return f"own excess {seconds:.1f} s" if basis is Basis.EXCESS else f"{seconds:.1f} s lost"


def limit_by_cost(finding: Finding) -> Finding:
    """The finding, as info if its severity follows from its cost and the cost is too small to measure."""
    if finding.kind in NOT_BY_COST or finding.seconds_lost >= LEAST_COST_S:
        return finding
    return replace(finding, severity=Severity.INFO)
