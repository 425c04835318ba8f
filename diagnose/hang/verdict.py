"""From evidence to the verdict on a stalled job, as commands and pages show it: which ranks block it.

mismatch?          members disagree on an operation: the minority
link down?         a host without its link, if the job stopped when it was lost
died first?        a process that ended while the others still moved
roots of waiting   ranks that others wait for and that wait for none
known in part?     the only rank of the job that does not wait (``partial.py``)
no rank?           a deadlock, resolved by a rank that left a collective out; a stuck operation; too little evidence
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from diagnose.findings import Evidence, Finding, Kind, Role, Severity, StepWindow, Suspect
from diagnose.hang.evidence import CutOff, HangEvidence, Process
from diagnose.hang.first_failure import (
    UNSEEN,
    all_failed_over_mismatch,
    as_it_stalled,
    find_cut_off,
    first_to_fail,
)
from diagnose.hang.folding import recorders_of
from diagnose.hang.mismatch import Mismatch, find_left_out, find_mismatch, stopped_short
from diagnose.hang.partial import lone_suspect, not_waiting, partial_cause, sure_roots, without_guessed_groups
from diagnose.hang.waits import Wait, WaitGraph, wait_graph
from diagnose.hang.wording import Cause, cut_off_headline, cut_off_next_step, headline, next_step
from diagnose.ranges import fold_ranks

SURE, LIKELY, DEDUCED = 0.95, 0.8, 0.7
LONE = {Cause.NEVER_ENTERED: DEDUCED, Cause.ELSEWHERE: DEDUCED, Cause.SILENT: 0.5}
"""Confidence in the only rank that is not known to wait."""
SETTLED_S = 60.0
"""Evidence that is missing after this time without progress stays missing: agents take it every half minute."""
UNKNOWN_SIZE = 0.1
"""Subtracted from this confidence if the number of ranks is a guess."""


class State(StrEnum):
    """The part of a rank in the hang."""

    BEHIND = "behind"
    """Others wait for it: initiating."""
    DEAD = "dead"
    """Others wait for it and its process is gone: initiating."""
    WAITING = "waiting"
    """A victim: it waits, directly or through others, for a rank that is behind."""
    MISSING = "missing"
    """There is no evidence of it."""
    UNKNOWN = "unknown"
    """The evidence does not show which."""


_ROLES = {State.BEHIND: Role.INITIATING, State.DEAD: Role.INITIATING, State.WAITING: Role.VICTIM}


@dataclass(frozen=True, slots=True, kw_only=True)
class HangVerdict:
    """Which ranks block the job. A pure function of the evidence."""

    evidence: HangEvidence
    kind: Kind | None
    """None: nothing is stalled."""
    initiating: tuple[int, ...]
    states: Mapping[int, State]
    """Rank -> its state, for all ranks of the job."""
    waits: Mapping[int, Wait]
    """Waiting rank -> its wait."""
    headline: str
    next_step: str
    confidence: float
    """0 to 1."""
    cut_off: CutOff | None = None
    """The lost link that explains the stall, if any."""

    def chain(self, rank: int) -> tuple[Wait, ...]:
        """The waits from ``rank`` to the root. Each wait is for the rank whose wait comes next."""
        found: list[Wait] = []
        visited = {rank}
        while (wait := self.waits.get(rank)) is not None:
            found.append(wait)
            rank = next((other for other in wait.on if other not in self.waits), wait.on[0]) if wait.on else rank
            if rank in visited:
                break
            visited.add(rank)
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Blame:
    ranks: tuple[int, ...]
    kind: Kind | None
    cause: Cause
    confidence: float


def judge(evidence: HangEvidence) -> HangVerdict:
    """The verdict. No rank is named without evidence, or only because it waits."""
    evidence = as_it_stalled(evidence)
    graph = wait_graph(evidence)
    if graph.waits and not graph.roots() and not graph.stuck:  # waiting in a circle: sends seldom block
        graph = wait_graph(evidence, without_sends=True)
    graph = without_guessed_groups(evidence, graph)
    mismatch = find_mismatch(evidence)
    cut_off = find_cut_off(evidence, graph) if mismatch is None else None
    blame = _by_mismatch(mismatch) or _by_network(cut_off) or _by_death(evidence) or _by_waiting(evidence, graph)
    blamed = frozenset(blame.ranks)
    # Evidence of all ranks counts fully; one missing in a hundred changes little.
    share = len(evidence.ranks) / evidence.world_size if evidence.world_size else 1.0
    confidence = blame.confidence * (0.5 + 0.5 * share) * (0.5 if UNSEEN in evidence.notes else 1)
    if cut_off:
        texts = cut_off_headline(evidence, cut_off), cut_off_next_step(cut_off)
    else:
        texts = (
            headline(evidence, graph, blame.ranks, blame.cause, mismatch),
            next_step(evidence, blame.ranks, blame.cause, not_waiting(evidence, graph)),
        )
    return HangVerdict(
        evidence=evidence,
        kind=blame.kind,
        initiating=blame.ranks,
        states=_states(evidence, graph, blamed),
        waits={rank: wait for rank, wait in graph.waits.items() if rank not in blamed},
        headline=texts[0],
        next_step=texts[1],
        cut_off=cut_off,
        confidence=round(confidence, 2),
    )


def _by_mismatch(mismatch: Mismatch | None) -> _Blame | None:
    if mismatch is None:
        return None
    confidence = SURE if mismatch.by_majority else LIKELY if mismatch.odd else LIKELY / 2
    return _blame(mismatch.odd, Kind.COLLECTIVE_MISMATCH, Cause.MISMATCH, confidence)


def _by_network(cut_off: CutOff | None) -> _Blame | None:
    if cut_off is None:
        return None
    return _blame(cut_off.ranks, Kind.NIC_FLAP if cut_off.is_flap else Kind.HUNG_COLLECTIVE, Cause.CUT_OFF, LIKELY)


def _by_death(evidence: HangEvidence) -> _Blame | None:
    first = first_to_fail(evidence)
    if all_failed_over_mismatch(evidence, first):
        return _blame((), Kind.COLLECTIVE_MISMATCH, Cause.FELL_OVER_MISMATCH, LIKELY / 2)
    if len(first) > 1:
        return _blame((), Kind.DEAD_RANK, Cause.DIED_TOGETHER, LIKELY / 2)
    return _blame(first, Kind.DEAD_RANK, Cause.DEAD, SURE) if first else None


def _by_waiting(evidence: HangEvidence, graph: WaitGraph) -> _Blame:
    if evidence.is_partial:
        return _by_partial(evidence, graph)
    roots = graph.roots()
    stopped = {rank for rank, of_rank in evidence.ranks.items() if of_rank.process is Process.STOPPED}
    visible = ((roots & evidence.ranks.keys()) - evidence.hidden_waits) | stopped
    if not visible and not roots and graph.waits and not graph.stuck:
        circle = {rank for wait in graph.waits.values() for rank in wait.on if rank in evidence.ranks}
        if left_out := find_left_out(evidence, circle):
            return _blame(left_out, Kind.COLLECTIVE_MISMATCH, Cause.LEFT_OUT, LIKELY)
    if visible:
        visible |= stopped_short(evidence, graph)
    if not visible:
        is_hidden = bool(roots & evidence.hidden_waits) or (not roots and _waits_in_guessed_group(evidence, graph))
        return _undecided() if is_hidden else _no_rank(evidence, graph, roots)
    cause = _cause(evidence, graph, visible)
    kind = Kind.DEAD_RANK if any(evidence.ranks[rank].is_gone for rank in visible) else Kind.HUNG_COLLECTIVE
    return _blame(visible, kind, cause, SURE)


def _by_partial(evidence: HangEvidence, graph: WaitGraph) -> _Blame:
    """The result if ranks are known in part. Of these ranks, only one is named: the only one that does not wait."""
    sure = sure_roots(evidence, graph)
    if sure:
        cause = _cause(evidence, graph, sure)
        return _blame(sure, Kind.HUNG_COLLECTIVE, cause, SURE if not sure & graph.device_stuck else LIKELY)
    suspects = not_waiting(evidence, graph)
    whole = {rank: of_rank for rank, of_rank in evidence.ranks.items() if not of_rank.partial}
    if len(whole) > 1:
        blame = _by_waiting(only_whole := replace(evidence, ranks=whole), wait_graph(only_whole))
        if blame.ranks and suspects.issuperset(blame.ranks):
            return blame
    lone = lone_suspect(evidence, graph, suspects)
    if lone is not None:
        cause = partial_cause(evidence, graph, lone)
        return _blame({lone}, Kind.HUNG_COLLECTIVE, cause, LONE[cause] - (UNKNOWN_SIZE if evidence.guessed_size else 0))
    if not suspects and graph.stuck and not evidence.guessed_size:
        return _no_rank(evidence, graph, graph.roots())
    return _undecided()


def _waits_in_guessed_group(evidence: HangEvidence, graph: WaitGraph) -> bool:
    return any(not evidence.groups[op.group].complete for op in graph.blocked.values())


def _undecided() -> _Blame:
    return _blame((), Kind.INSUFFICIENT_EVIDENCE, Cause.UNDECIDED, LIKELY / 2)


def _blame(ranks: Iterable[int], kind: Kind | None, cause: Cause, confidence: float) -> _Blame:
    return _Blame(ranks=tuple(sorted(ranks)), kind=kind, cause=cause, confidence=confidence)


def _no_rank(evidence: HangEvidence, graph: WaitGraph, roots: set[int]) -> _Blame:
    if roots:
        kind = Kind.HUNG_COLLECTIVE if evidence.still_s >= SETTLED_S else Kind.INSUFFICIENT_EVIDENCE
        return _blame((), kind, Cause.MISSING, LIKELY / 2)
    if graph.waits and not graph.stuck:
        return _blame((), Kind.INSUFFICIENT_EVIDENCE, Cause.CIRCLE, LIKELY / 2)
    if graph.stuck:
        return _blame((), Kind.HUNG_COLLECTIVE, Cause.ALL_ENTERED, LIKELY / 2)
    return _blame((), None, Cause.NOTHING, 1.0)


def _cause(evidence: HangEvidence, graph: WaitGraph, ranks: set[int]) -> Cause:
    if any(evidence.ranks[rank].process is Process.STOPPED for rank in ranks):
        return Cause.STOPPED
    if any(evidence.ranks[rank].is_gone for rank in ranks):
        return Cause.DEAD
    return Cause.DEVICE if ranks <= graph.device_stuck else Cause.NEVER_ENTERED


def _states(evidence: HangEvidence, graph: WaitGraph, blamed: frozenset[int]) -> dict[int, State]:
    victims = graph.reaching(blamed)

    def state(rank: int) -> State:
        of_rank = evidence.ranks.get(rank)
        if rank in blamed:
            return State.DEAD if of_rank is not None and of_rank.is_dead else State.BEHIND
        if of_rank is None:
            return State.MISSING
        return State.WAITING if rank in victims else State.UNKNOWN

    known = range(evidence.world_size) if evidence.world_size else sorted(evidence.ranks)
    return {rank: state(rank) for rank in known}


def hang_finding(verdict: HangVerdict) -> Finding | None:
    """The verdict as a finding, like those of detectors; None if nothing is stalled."""
    if verdict.kind is None:
        return None
    evidence = verdict.evidence
    steps = [of_rank.step for of_rank in evidence.ranks.values() if of_rank.step >= 0]
    return Finding(
        detector="hang",
        kind=verdict.kind,
        severity=severity_of(verdict),
        suspects=tuple(_suspects(verdict)),
        stage=next((evidence.ranks[rank].stage for rank in verdict.initiating if rank in evidence.ranks), ""),
        window=StepWindow(first_step=min(steps, default=0), last_step=max(steps, default=0)),
        seconds_lost=evidence.still_s,
        confidence=verdict.confidence,
        summary=verdict.headline,
        next_step=verdict.next_step,
        evidence=_numbers(verdict),
    )


def severity_of(verdict: HangVerdict) -> Severity:
    """Critical, but info if evidence is missing, or if the link is up and the job is about to continue."""
    cut_off = verdict.cut_off
    is_back = cut_off is not None and cut_off.is_flap and not cut_off.outage.lasts
    return Severity.INFO if is_back or verdict.kind is Kind.INSUFFICIENT_EVIDENCE else Severity.CRITICAL


def _suspects(verdict: HangVerdict) -> Iterator[Suspect]:
    ranks = verdict.evidence.ranks
    for rank, state in verdict.states.items():
        role = _ROLES.get(state, Role.UNKNOWN)
        if role is not Role.UNKNOWN or state is State.MISSING:
            yield Suspect(rank=rank, host=ranks[rank].host if rank in ranks else "", role=role)


def _numbers(verdict: HangVerdict) -> Evidence:
    evidence = verdict.evidence
    numbers: dict[str, float | int | str | list[int] | list[float] | list[str]] = {
        "ranks_waiting": sum(state is State.WAITING for state in verdict.states.values()),
        "ranks_seen": len(evidence.ranks),
    }
    if verdict.cut_off is not None:
        numbers |= {"device": verdict.cut_off.outage.device, "seconds_down": round(verdict.cut_off.down_s, 3)}
    if evidence.missing:
        numbers["left_nothing"] = fold_ranks(evidence.missing)
    if recorders := recorders_of(evidence):
        numbers["flight_recorders"] = recorders
    for rank in verdict.initiating or first_to_fail(evidence):
        of_rank = evidence.ranks.get(rank)
        if of_rank is not None and of_rank.stack:
            numbers[f"stack_of_rank_{rank}"] = list(of_rank.stack[:8])
        if of_rank is not None and of_rank.has_fault:
            faults = [f"{line.fault}: {line.text}" for line in of_rank.log if line.fault]
            numbers[f"log_of_rank_{rank}"] = faults[:3]
    if evidence.notes:
        numbers["notes"] = list(evidence.notes[:10])
    return numbers
