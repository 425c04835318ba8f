"""The results that are also reports of commands: findings, stalls, goodput, comparison. See ``results.py``."""

from typing import Any

from diagnose.compare.records import Verdict
from diagnose.findings import Basis, Kind, Role, Severity
from diagnose.model.run_state import RunState
from ui.dashboard.tools.results import Result, SchemaOne


class Window(Result):
    """Steps, both included."""

    first_step: int
    last_step: int


class Suspect(Result):
    """Who a finding is about."""

    rank: int
    host: str
    role: Role


class FindingProfile(Result):
    """A stored profile of a rank."""

    profile: str
    rank: int
    first_step: int
    last_step: int


class FindingResult(Result):
    """One problem. See docs/reference/findings.md."""

    detector: str
    kind: Kind
    severity: Severity
    ranks: list[int]
    """The initiating ranks."""
    hosts: list[str]
    """Their hosts."""
    suspects: list[Suspect]
    stage: str
    """Empty: no stage."""
    window: Window
    seconds_lost: float
    """The cost in the window."""
    share_lost: float
    """The same as a share of the time of the affected steps."""
    cost_basis: Basis
    """`measured` or `replayed`: job time that was lost. `excess`: the cost to the job is unknown."""
    confidence: float
    summary: str
    """A sentence for people."""
    next_step: str
    evidence: dict[str, Any]
    """Numbers and texts behind the finding. The names depend on the detector."""
    profiles: list[FindingProfile]


class ExposedAxis(Result):
    """Communication along an axis that no compute covers, in a step."""

    seconds: float
    share: float


class MarkResult(Result):
    """An event that is not a finding, such as a link loss that ended."""

    name: str
    host: str
    device: str
    at_ns: int
    seconds: float
    count: int
    lasts: bool
    held_s: float
    stretched: list[str]


class LossResult(Result):
    """Records of a rank that are missing in the store."""

    rank: int
    step: int
    at_ns: int
    text: str


class FindingsResult(SchemaOne):
    """As `rankscope diagnose --json`, with the number of findings."""

    run: str
    attempt: int
    window: Window
    num_findings: int
    """`findings` has the worst of them."""
    findings: list[FindingResult]
    """The worst first. Empty: nothing was found."""
    exposed: dict[str, ExposedAxis]
    marks: list[MarkResult]
    losses: list[LossResult]
    state: RunState | None
    heard_ns: int | None


class EvidenceSource(Result):
    """One kind of evidence of a stall."""

    source: str
    ranks: list[int]
    """The ranks that it shows anything of."""
    says: str
    """The verdict of this source alone. Empty: it is the only one."""


class Disagreement(Result):
    """Two sources that disagree."""

    ranks: list[int]
    text: str


class HangResult(SchemaOne):
    """As `rankscope diagnose hang --json`."""

    run: str
    attempt: int
    window: Window
    findings: list[FindingResult]
    """The verdict. Empty: there is no evidence of a stall, or the job has continued since."""
    missing_ranks: list[int]
    """Ranks without evidence."""
    sources: list[EvidenceSource]
    contradictions: list[Disagreement]


class Incident(Result):
    """A failure and its cost."""

    attempt: int
    cause: str
    reason: str
    nodes: list[str]
    began_ns: int
    detected_ns: int | None
    resumed_ns: int | None
    cost_s: float


class GoodputResult(SchemaOne):
    """As `rankscope goodput --json`, with the number of incidents."""

    run: str
    attempts: list[int]
    wall_s: float
    goodput: float | None
    """Useful time divided by wall time. None: no completed step."""
    classes: dict[str, float]
    """Class -> seconds. The sum is `wall_s`."""
    num_incidents: int
    """`incidents` has the newest of them."""
    incidents: list[Incident]
    unknown: list[str]
    """What is not known, as sentences."""


class ComparedSide(Result):
    """One side of a comparison."""

    name: str
    run: str
    attempt: int
    first_step: int
    last_step: int
    num_steps: int
    left_out: int
    """Settling steps and steps with a profile."""
    ranks: list[int] | None
    """None: all."""
    mesh: str


class ChangedPart(Result):
    """A ratio B / A. None: not known."""

    ratio: float | None
    low: float | None
    """The 95% interval begins here."""
    high: float | None
    detectable: float | None
    """The smallest change, as a share of A, that would have been a difference."""
    verdict: Verdict | None


class ChangedStep(ChangedPart):
    """A step time of both sides."""

    a_s: float
    b_s: float


class ChangedStage(ChangedPart):
    """A stage of both sides. None: the side does not have the stage, or the change is not known."""

    stage: str
    role: str
    compared: str | None
    """Which time is compared."""
    a_s: float | None
    b_s: float | None
    a_share_of_steps: float
    b_share_of_steps: float
    share_of_step: float
    """Time that the change adds, as a share of a step of A."""


class ChangedRank(Result):
    """A rank whose compute time changed by more than that of the others."""

    rank: int
    role: str
    host_a: str
    host_b: str
    stages: dict[str, float]
    """Stage -> ratio B / A beyond the change of the other ranks."""
    share_of_step: float
    verdict: Verdict


class CompareResult(SchemaOne):
    """As `rankscope compare --json`, with the number of ranks that differ."""

    verdict: Verdict
    """B against A."""
    summary: str
    a: ComparedSide
    b: ComparedSide
    least_change: float
    """As a share."""
    tests: int
    step: ChangedStep | None
    """Mean step time. None: both sides are ranks of the same steps."""
    typical_step: ChangedStep | None
    """Without the longest and the shortest steps."""
    stages: list[ChangedStage]
    num_ranks: int
    """Number of ranks that differ."""
    ranks: list[ChangedRank]
    """The largest change first."""
    notes: list[str]
    """Limits of the comparison, as sentences."""
