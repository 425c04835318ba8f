"""The defaults of a page: the suspect rank, a typical step, the newest steps."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from diagnose.findings import Finding, Kind, StepWindow
from diagnose.model.collectives import INNER_GROUP_STAGES, TP_STAGES, group_axis
from diagnose.model.exposed import AXIS_OF_STAGE
from diagnose.model.run_state import RunState
from diagnose.pipeline import Report
from telemetry.errors import UsageError
from telemetry.stages import Stage
from telemetry.topology import AXES, Topology
from ui.dashboard.records import Ints, RunFacts
from ui.dashboard.view_state import LARGEST, Family, Group, Metric, StepRange, ViewState

RECENT_STEPS = 20
NEWEST_STEPS = 100
MAX_ROWS = 64
"""Largest number of ranks of a group in one timeline."""
COLLECTIVES = (
    Stage.GRADS_REDUCE_SCATTER,
    Stage.GRADS_ALL_REDUCE,
    Stage.SEPARATE_GRADS_ALL_REDUCE,
    Stage.PARAMS_ALL_GATHER,
    *INNER_GROUP_STAGES,
    *TP_STAGES,
)
"""Collectives, those with most ranks first."""
FAMILY_OF = {
    Kind.NIC_FLAP: Family.NETWORK,
    Kind.GPU_THROTTLED: Family.GPU,
    Kind.GPU_ERROR: Family.GPU,
    Kind.HOST_CONTENTION: Family.HOST,
    Kind.UNLIKE_HOST: Family.HOST,
}
"""Kind of finding -> family of host samples that shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The ranks that a timeline shows."""

    ranks: tuple[int, ...]
    """The group, then the ranks in ``pinned``."""
    group: Group
    rank: int
    pinned: tuple[int, ...] = ()
    """Pinned ranks that are not in the group."""
    num_left_out: int = 0


def worst_finding(report: Report) -> Finding | None:
    """The worst finding. ``insufficient-evidence`` does not count."""
    wrong = [finding for finding in report.findings if finding.kind is not Kind.INSUFFICIENT_EVIDENCE]
    return wrong[0] if wrong else None


def findings_of_hosts(report: Report | None, hosts: Collection[str]) -> dict[str, Finding]:
    """The worst finding of each of ``hosts``, the worst first. Empty without a report."""
    if report is None:
        return {}
    wrong = [finding for finding in report.findings if finding.kind is not Kind.INSUFFICIENT_EVIDENCE]
    named = {host: finding for finding in reversed(wrong) for host in finding.hosts if host in hosts}
    return {host: named[host] for finding in wrong for host in finding.hosts if host in named}


def onset_of(finding: Finding, examined: StepWindow) -> int | None:
    """The first step that the finding names, otherwise the first step of its window. None if that is the first of the
    ``examined`` steps, because the problem may have begun earlier."""
    named, first = named_steps(finding), finding.window.first_step
    if named:
        return min(named)
    return first if first > examined.first_step else None


def named_steps(finding: Finding) -> list[int]:
    """The steps that the evidence of a finding names."""
    named = finding.evidence.get("steps")
    return [step for step in named if isinstance(step, int)] if isinstance(named, list) else []


def suspects(report: Report | None) -> tuple[int, ...]:
    """The initiating ranks of all findings, ascending. Empty without a report."""
    if report is None:
        return ()
    return tuple(sorted({rank for finding in report.findings for rank in finding.ranks}))


def chosen_steps(state: ViewState, facts: RunFacts, newest: int = NEWEST_STEPS) -> StepRange:
    """The steps that the address names. If it names none, the last ``newest`` (a number) of the stored steps.

    Raises:
        UsageError: the address asks for steps that are not stored.
    """
    stored = facts.steps.step
    first, last = int(stored[0]), int(stored[-1])
    if state.steps is None:
        return StepRange(int(stored[max(0, len(stored) - newest)]), last)
    if state.steps.first > last or state.steps.last < first:
        raise UsageError(
            f"Steps {state.steps.first} to {state.steps.last} are not stored",
            hint=f"this run has steps {first} to {last}: choose steps in this range",
        )
    return StepRange(max(first, state.steps.first), min(last, state.steps.last))


def chosen_stage(state: ViewState, facts: RunFacts) -> Stage:
    """The stage of the address. If waiting times are shown and it is no collective, the first recorded collective. If
    exposed time is shown and it is no communication, the first recorded communication."""
    if state.metric is Metric.EXPOSED and state.stage not in AXIS_OF_STAGE:
        return next((stage for stage in facts.stages if stage in AXIS_OF_STAGE), state.stage)
    if state.metric is not Metric.WAIT or _has_group(state.stage, facts):
        return state.stage
    return next(iter(collectives_of(facts)), state.stage)


def collectives_of(facts: RunFacts) -> list[Stage]:
    """The recorded collectives of several ranks, in the order of :data:`COLLECTIVES`."""
    return [stage for stage in COLLECTIVES if stage in facts.stages and _has_group(stage, facts)]


def _has_group(stage: Stage, facts: RunFacts) -> bool:
    """Whether several ranks take part in a collective of this stage."""
    degrees = {"dp": facts.topology.dp, "tp": facts.topology.tp, None: 1}
    return stage in INNER_GROUP_STAGES or degrees[group_axis(stage)] > 1


def chosen_step(state: ViewState, facts: RunFacts) -> int:
    """The step of the address. Otherwise the newest complete step of a live run, or a typical step of the chosen
    steps.

    Raises:
        UsageError: the address asks for a step that is not stored.
    """
    stored = facts.steps.step
    if state.step is None:
        follows = state.steps is None or state.steps.last == LARGEST
        if follows and facts.summary.state is RunState.LIVE:
            return int(facts.steps.complete(facts.topology.world_size)[-1])
        return typical_step(facts, state.steps)
    if state.step not in stored:
        raise UsageError(
            f"Step {state.step} is not stored", hint=f"this run has steps {int(stored[0])} to {int(stored[-1])}"
        )
    return state.step


def typical_step(facts: RunFacts, within: StepRange | None = None) -> int:
    """The recent complete step whose duration is nearest to the median."""
    recent = _complete_steps(facts, within)[-RECENT_STEPS:]
    duration = facts.steps.duration_ns[np.isin(facts.steps.step, recent)]
    return int(recent[np.abs(duration - np.median(duration)).argmin()])


def _complete_steps(facts: RunFacts, within: StepRange | None) -> Ints:
    """The complete steps, within a range if it has any."""
    complete = facts.steps.complete(facts.topology.world_size)
    if within is None:
        return complete
    inside = complete[(complete >= within.first) & (complete <= within.last)]
    return inside if len(inside) else complete


def slowest_step(facts: RunFacts, within: StepRange | None = None) -> int:
    """The slowest of the newest hundred complete steps."""
    complete = _complete_steps(facts, within)[-NEWEST_STEPS:]
    duration = facts.steps.duration_ns[np.isin(facts.steps.step, complete)]
    return int(complete[duration.argmax()])


def chosen_rank(state: ViewState, facts: RunFacts, named: Sequence[int]) -> int:
    """The rank of the address, or the first rank of ``named`` that exists, or rank 0.

    Raises:
        UsageError: the address names a rank that does not exist.
    """
    world = facts.topology.world_size
    if state.rank is None:
        return next((rank for rank in named if rank < world), 0)
    if state.rank >= world:
        raise UsageError(f"There is no rank {state.rank}", hint=f"this run has ranks 0 to {world - 1}")
    return state.rank


def chosen_rows(state: ViewState, facts: RunFacts, named: Sequence[int]) -> Rows:
    """The ranks of the address. Otherwise the pipeline group of the first rank of ``named``, or of rank 0. Without a
    pipeline, the group of that rank along the first axis with several ranks.

    Raises:
        UsageError: the address names a rank that does not exist.
    """
    world, rank = facts.topology.world_size, chosen_rank(state, facts, named)
    groups = groups_of(facts.topology)
    group = state.group if state.group in groups else groups[0]  # a group of another run may not exist in this run
    members = tuple(range(world)) if group is Group.ALL else group_members(facts.topology, rank, group)
    at = members.index(rank)
    first = min(max(0, at - MAX_ROWS // 2), max(0, len(members) - MAX_ROWS))
    shown = members[first : first + MAX_ROWS]
    pinned = tuple(pin for pin in state.pins if pin < world and pin not in shown)
    return Rows(
        ranks=(*shown, *pinned),
        group=group,
        rank=rank,
        pinned=pinned,
        num_left_out=len(members) - len(shown) - len({*pinned} & {*members}),
    )


def group_members(topology: Topology, rank: int, group: Group) -> tuple[int, ...]:
    """The ranks of the group of ``rank``. ``group`` must not be ``Group.ALL``."""
    axis = next((axis for axis in AXES if axis == group.value), None)
    if axis is not None:
        return topology.group(rank, along=axis)
    return topology.group_of(rank, topology.mask(group.value))


def groups_of(topology: Topology) -> list[Group]:
    """The groups of several ranks, and all ranks. An axis cp or ep that is the whole direction dp of the grid is listed
    as replicas."""
    wide = [name for name, degree in topology.mesh if degree > 1 and name not in ("pp", "tp")]
    degrees = {Group.PP: topology.pp, Group.DP: topology.dp, Group.TP: topology.tp}
    apart = [group for group in (Group.CP, Group.EP) if group.value in wide and len(wide) > 1]
    return [group for group in Group if group is Group.ALL or degrees.get(group, 1) > 1 or group in apart]


def groups_of_rank(topology: Topology, rank: int) -> list[tuple[Group, tuple[int, ...]]]:
    """The groups of a rank that have several ranks, with these ranks."""
    groups = [group for group in groups_of(topology) if group is not Group.ALL]
    return [(group, group_members(topology, rank, group)) for group in groups]
