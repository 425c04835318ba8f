"""Findings compared with the truth."""

from dataclasses import dataclass, replace

from diagnose.findings import Finding, Kind, Severity
from diagnose.model.view import RunView
from diagnose.pipeline import diagnose_view
from diagnose.simulate.run import simulate, view
from diagnose.simulate.truth import Truth
from tests.score.cases import Case
from tests.score.windows import until

LOOKS = (6, 8, 10, 12, 15, 20, 25, 30, 40, 60)
"""The detectors run again after these numbers of steps since the start of a fault."""
TIMED_RANKS = 64
MOST_OF = 0.5
"""A fault on a larger share of the ranks concerns the whole job: no rank must be named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The findings of all detectors on a case."""

    case: Case
    truth: tuple[Truth, ...]
    findings: tuple[Finding, ...]
    """Without those about insufficient evidence."""
    steps: int | None = None
    """From the first step of the fault to the first exact finding; None: not timed."""

    @property
    def right(self) -> list[Finding]:
        """Findings of the right kind with exactly the right suspect."""
        world = self.case.plan.topology.world_size
        return [one for one in self.findings if any(is_exact(one, truth, world) for truth in self.truth)]

    @property
    def of_kind(self) -> list[Finding]:
        """Findings of the right kind, with any suspects."""
        return [one for one in self.findings if any(one.kind == truth.kind for truth in self.truth)]

    @property
    def wrong(self) -> list[Finding]:
        """Wrong findings. In a healthy run, findings of severity info are not wrong."""
        told = self.findings if self.truth else [one for one in self.findings if one.severity is not Severity.INFO]
        return [one for one in told if one not in self.right]


def is_exact(finding: Finding, truth: Truth, world_size: int) -> bool:
    """Whether a finding names the fault and exactly its ranks."""
    wanted = () if len(truth.ranks) > MOST_OF * world_size else truth.ranks
    at_stage = truth.pp is None or finding.evidence.get("pp") == truth.pp
    return finding.kind == truth.kind and at_stage and finding.ranks == sorted(wanted)


def verdict(case: Case, *, timed: bool = False) -> Verdict:
    """Simulate a case and run all detectors. ``timed``: also on earlier parts of the run, until the fault is named."""
    simulation = simulate(case.plan)
    seen = view(simulation)
    findings = diagnose_view(seen).findings
    found = Verdict(
        case=case,
        truth=simulation.truth,
        findings=tuple(one for one in findings if one.kind is not Kind.INSUFFICIENT_EVIDENCE),
    )
    if timed and found.right and case.plan.topology.world_size <= TIMED_RANKS:
        return replace(found, steps=steps_to_verdict(seen, simulation.truth[0]))
    return found


def steps_to_verdict(seen: RunView, truth: Truth) -> int | None:
    """Steps from the start of a fault to the first exact finding; None: never."""
    before = truth.first_step - int(seen.steps[0])
    for look in LOOKS:
        if before + look > len(seen.steps):
            return None
        report = diagnose_view(until(seen, before + look))
        if any(is_exact(one, truth, seen.topology.world_size) for one in report.findings):
            return look
    return None


def describe(one: Verdict) -> str:
    """A line for the list of misses."""
    said = (
        "; ".join(f"{finding.kind} {finding.ranks[:9]} ({finding.severity})" for finding in one.findings) or "nothing"
    )
    plan = one.case.plan
    fault = one.truth[0].fault if one.truth else "healthy"
    topology = plan.topology
    grid = f"dp{topology.dp} pp{topology.pp} tp{topology.tp}" if topology.is_plain else str(topology)
    return f"seed {one.case.seed}, {grid}, {plan.num_steps} steps, {plan.device}: {fault}: reported {said}"
