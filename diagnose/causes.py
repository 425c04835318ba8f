"""Causes and effects: the table that reports and alerts use to leave out findings that another finding explains.

    nic-flap, gpu-error, dead-rank, ... --> hung-collective, slow-link, late-launch, data-stall
    gpu-throttled, host-contention -------> compute-straggler, late-launch on the same host
    compute-straggler --------------------> late-launch, host-contention of the same rank that shows no other cause
    any slowdown -------------------------> mfu-decline; late-launch and slow-link that name no rank. A known rank
                                            explains a slow link only if its host is at this link
    slow-link ----------------------------> late-launch that names no rank, of ranks that include those of the link
    any slowdown -------------------------> unlike-host, role-idle

A report compares steps and costs over one window. Alerts compare times, so they also use rows about a job that stalls.
Both add their own bounds: see ``without_symptoms`` here and ``alerts/rules.py``.
"""

from dataclasses import dataclass
from enum import StrEnum

from diagnose.detectors.host_witness import Cause
from diagnose.findings import Finding, Kind, Role, Severity

MIN_SHARE = 0.4
"""Share of an effect's steps and of its cost that a cause must have to explain it."""
MIN_SHARE_OF_LATENESS = 0.15
"""Share of the cost that is used instead if the cause is late launches: their cost is only the growth of one of many
waits. It is also used for ranks with a long compute time that are late or wait for a core: on crowded cores, more work
takes several times its CPU time."""


class Reach(StrEnum):
    """Which effects a cause explains."""

    RUN = "anywhere in the run"
    HOST = "on the same host"
    MOST_RANKS = "on at least half of the effect's ranks"
    ANY_RANK = "on one of the effect's ranks"
    UNNAMED = "where the effect names no rank or host"
    AROUND = "where the effect names no rank or host, and its ranks include those of the cause"
    NAMED = "where the cause names a host"


class Condition(StrEnum):
    """A further condition that a row must meet in a report."""

    NONE = "none"
    SLIGHT = "the effect is information only"
    SLIGHT_AND_GRAVE = "the effect is information only and the cause is more"
    WITNESS = "the host shows why its ranks do not compute, and it is not the longer work of the rank itself"
    OWN_WORK = "the effect is one rank that waits because of its longer work: its host shows no other cause"
    NOT_GC = "garbage collection explains less than half of the late launches"
    AT_LINK = "the effect is no slow link, or a slow link with the cause at one of its hosts, as far as both are known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """One row: each of ``causes`` explains each of ``effects``."""

    causes: frozenset[Kind]
    effects: frozenset[Kind]
    report: Reach | None = None
    """Reach in a report; None: the row is not used there."""
    alerts: Reach | None = None
    """Reach among alerts; None: the row is not used there."""
    condition: Condition = Condition.NONE


def _row(
    causes: set[Kind],
    effects: set[Kind],
    *,
    report: Reach | None = None,
    alerts: Reach | None = None,
    condition: Condition = Condition.NONE,
) -> Relation:
    return Relation(
        causes=frozenset(causes), effects=frozenset(effects), report=report, alerts=alerts, condition=condition
    )


_SLOWDOWNS = {*Kind} - {Kind.MFU_DECLINE, Kind.LOSS_ANOMALY, Kind.ROLE_IDLE, Kind.INSUFFICIENT_EVIDENCE}
"""Kinds that make steps longer. Steps with a bad loss are not slower, and a role may wait because of a slowdown."""
_STALLS = {Kind.NIC_FLAP, Kind.GPU_ERROR, Kind.DEAD_RANK, Kind.COLLECTIVE_MISMATCH}
_WAITS = {Kind.LATE_LAUNCH, Kind.SLOW_LINK, Kind.DATA_STALL}

TABLE: tuple[Relation, ...] = (
    _row(_STALLS, {Kind.HUNG_COLLECTIVE, *_WAITS}, alerts=Reach.RUN),
    _row({Kind.HUNG_COLLECTIVE}, _WAITS, alerts=Reach.RUN),
    _row({Kind.GPU_ERROR}, {Kind.DEAD_RANK, Kind.GPU_THROTTLED, Kind.COMPUTE_STRAGGLER}, alerts=Reach.HOST),
    _row(
        {Kind.GPU_ERROR, Kind.GPU_THROTTLED, Kind.HOST_CONTENTION},
        {Kind.LATE_LAUNCH, Kind.DATA_STALL},
        alerts=Reach.HOST,
    ),
    _row({Kind.GPU_THROTTLED}, {Kind.COMPUTE_STRAGGLER}, report=Reach.MOST_RANKS, alerts=Reach.HOST),
    _row(
        {Kind.HOST_CONTENTION},
        {Kind.COMPUTE_STRAGGLER},
        report=Reach.MOST_RANKS,
        alerts=Reach.HOST,
        condition=Condition.WITNESS,
    ),
    _row({Kind.HOST_CONTENTION}, {Kind.COMPUTE_STRAGGLER}, report=Reach.HOST, condition=Condition.SLIGHT),
    _row({Kind.COMPUTE_STRAGGLER}, {Kind.HOST_CONTENTION}, report=Reach.MOST_RANKS, condition=Condition.OWN_WORK),
    _row(
        {Kind.SLOW_LINK, Kind.NIC_FLAP},
        {Kind.COMPUTE_STRAGGLER},
        report=Reach.RUN,
        condition=Condition.SLIGHT_AND_GRAVE,
    ),
    _row({Kind.COMPUTE_STRAGGLER}, {Kind.LATE_LAUNCH}, report=Reach.ANY_RANK, condition=Condition.NOT_GC),
    _row(_SLOWDOWNS, {Kind.ROLE_IDLE}, report=Reach.RUN, alerts=Reach.RUN),
    _row(_SLOWDOWNS - {Kind.UNLIKE_HOST}, {Kind.UNLIKE_HOST}, report=Reach.NAMED, alerts=Reach.HOST),
    _row(
        _SLOWDOWNS,
        {Kind.LATE_LAUNCH, Kind.SLOW_LINK},
        report=Reach.UNNAMED,
        alerts=Reach.UNNAMED,
        condition=Condition.AT_LINK,
    ),
    _row({Kind.SLOW_LINK}, {Kind.LATE_LAUNCH}, report=Reach.AROUND),
    _row({Kind.DATA_STALL}, {Kind.DATA_STALL}, alerts=Reach.UNNAMED),
    _row(_SLOWDOWNS | {Kind.ROLE_IDLE}, {Kind.MFU_DECLINE}, report=Reach.RUN, alerts=Reach.RUN),
)
"""In a row with ``Reach.UNNAMED``, a cause whose kind is also one of the effects must itself name a rank or host."""


def without_symptoms(findings: list[Finding]) -> list[Finding]:
    """The findings that no other finding explains. For the shares that a cause must have, see ``MIN_SHARE``."""
    return [effect for effect in findings if not any(_explains(cause, effect) for cause in findings)]


def is_symptom(finding: Finding) -> bool:
    """Whether a finding shows that time is lost, but not where."""
    unnamed = finding.kind in (Kind.LATE_LAUNCH, Kind.SLOW_LINK) and not finding.ranks
    return unnamed or finding.kind is Kind.MFU_DECLINE


def _explains(cause: Finding, effect: Finding) -> bool:
    rows = [row for row in TABLE if cause.kind in row.causes and effect.kind in row.effects]
    if not any(_reaches(row, cause, effect) and _holds(row.condition, cause, effect) for row in rows):
        return False
    first = max(cause.window.first_step, effect.window.first_step)
    last = min(cause.window.last_step, effect.window.last_step)
    common = max(0, last - first + 1) / (effect.window.last_step - effect.window.first_step + 1)
    is_lateness = cause.kind is Kind.LATE_LAUNCH or _is_late_by_work(cause, effect)
    is_lateness |= (cause.kind, effect.kind) == (Kind.COMPUTE_STRAGGLER, Kind.HOST_CONTENTION)
    least = MIN_SHARE_OF_LATENESS if is_lateness else MIN_SHARE
    return common >= MIN_SHARE and cause.seconds_lost >= least * effect.seconds_lost


def _is_late_by_work(cause: Finding, effect: Finding) -> bool:
    is_pair = cause.kind is Kind.COMPUTE_STRAGGLER and effect.kind is Kind.LATE_LAUNCH
    return is_pair and bool(_late_ranks(effect) & {*cause.ranks}) and _holds(Condition.NOT_GC, cause, effect)


def _reaches(row: Relation, cause: Finding, effect: Finding) -> bool:
    match row.report:
        case Reach.RUN:
            return True
        case Reach.HOST:
            return bool({*cause.hosts} & {*effect.hosts})
        case Reach.MOST_RANKS:
            return 2 * len({*cause.ranks} & {*effect.ranks}) >= len(effect.ranks)
        case Reach.ANY_RANK:
            return bool(_late_ranks(effect) & {*cause.ranks})
        case Reach.UNNAMED:
            return not effect.ranks and (cause.kind not in row.effects or bool(cause.ranks))
        case Reach.AROUND:
            return not effect.ranks and bool(_ranks(cause)) and _ranks(cause) <= _ranks(effect)
        case Reach.NAMED:
            return bool(cause.hosts)
        case None:
            return False


def _ranks(finding: Finding) -> set[int]:
    return {suspect.rank for suspect in finding.suspects}


def _late_ranks(effect: Finding) -> set[int]:
    return {suspect.rank for suspect in effect.suspects if suspect.role is not Role.VICTIM}


def _holds(condition: Condition, cause: Finding, effect: Finding) -> bool:
    match condition:
        case Condition.NONE:
            return True
        case Condition.SLIGHT:
            return effect.severity is Severity.INFO
        case Condition.SLIGHT_AND_GRAVE:
            return effect.severity is Severity.INFO and cause.severity is not Severity.INFO
        case Condition.WITNESS:
            return "cause" in cause.evidence and not _waits_for_own_work(work=effect, wait=cause)
        case Condition.OWN_WORK:
            return _waits_for_own_work(work=cause, wait=effect)
        case Condition.NOT_GC:
            return 2 * _number(effect, "late_launches_with_gc") < max(1.0, _number(effect, "late_launches"))
        case Condition.AT_LINK:
            return effect.kind is not Kind.SLOW_LINK or _is_at_link(cause, effect)


def _is_at_link(cause: Finding, link: Finding) -> bool:
    """Whether the ranks of the cause may slow the link. Ranks elsewhere cannot, because a transfer contains no
    waiting."""
    hosts = {suspect.host for suspect in link.suspects} - {""}
    return not cause.ranks or not link.suspects or bool(hosts & {*cause.hosts} or _ranks(link) & {*cause.ranks})


def _waits_for_own_work(*, work: Finding, wait: Finding) -> bool:
    """Whether a rank waits for a core because it computes longer: on a machine with fewer cores than ranks, both grow.

    A host that shows only that the rank waited for a core, and no process in particular, shows no other cause.
    """
    is_unexplained = wait.evidence.get("cause", Cause.CROWDED) == Cause.CROWDED
    is_large = work.severity is not Severity.INFO and work.seconds_lost >= MIN_SHARE_OF_LATENESS * wait.seconds_lost
    return is_unexplained and is_large and len(wait.ranks) == 1


def _number(finding: Finding, name: str) -> float:
    value = finding.evidence.get(name, 0)
    return float(value) if isinstance(value, (int, float)) else 0.0
