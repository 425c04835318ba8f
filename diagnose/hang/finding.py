"""The verdict on a hang as a finding, like those of detectors."""

from collections.abc import Iterator

from diagnose.findings import Evidence, Finding, Kind, Role, Severity, StepWindow, Suspect
from diagnose.hang.deaths import first_to_fall
from diagnose.hang.evidence import recorders_of
from diagnose.hang.verdict import HangVerdict, State
from diagnose.ranges import fold_ranks

_ROLES = {State.BEHIND: Role.INITIATING, State.DEAD: Role.INITIATING, State.WAITING: Role.VICTIM}


def hang_finding(verdict: HangVerdict) -> Finding | None:
    """The finding; None when nothing stands still."""
    if verdict.kind is None:
        return None
    evidence = verdict.evidence
    steps = [one.step for one in evidence.ranks.values() if one.step >= 0]
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
    """Only info where evidence is missing, or where the link is back and the job is about to go on."""
    found = verdict.cut_off
    is_back = found is not None and found.is_flap and not found.outage.lasts
    missing = verdict.kind is Kind.INSUFFICIENT_EVIDENCE
    return Severity.INFO if missing or is_back else Severity.CRITICAL


def _suspects(verdict: HangVerdict) -> Iterator[Suspect]:
    ranks = verdict.evidence.ranks
    for rank, state in verdict.states.items():
        role = _ROLES.get(state, Role.UNKNOWN)
        if role is not Role.UNKNOWN or state is State.MISSING:
            yield Suspect(rank=rank, host=ranks[rank].host if rank in ranks else "", role=role)


def _numbers(verdict: HangVerdict) -> Evidence:
    evidence, states = verdict.evidence, verdict.states
    waiting = [rank for rank, state in states.items() if state is State.WAITING]
    found: dict[str, float | int | str | list[int] | list[float] | list[str]] = {
        "ranks_waiting": len(waiting),
        "ranks_seen": len(evidence.ranks),
    }
    if verdict.cut_off is not None:
        found |= {"device": verdict.cut_off.outage.device, "seconds_down": round(verdict.cut_off.down_s, 3)}
    if evidence.missing:
        found["left_nothing"] = fold_ranks(evidence.missing)
    if recorders := recorders_of(evidence):
        found["flight_recorders"] = recorders
    for rank in verdict.initiating or first_to_fall(evidence):
        one = evidence.ranks.get(rank)
        if one is not None and one.stack:
            found[f"stack_of_rank_{rank}"] = list(one.stack[:8])
        faults = [line for line in one.log if line.fault] if one is not None else []
        if faults:
            found[f"log_of_rank_{rank}"] = [f"{line.fault}: {line.text}" for line in faults[:3]]
    if evidence.notes:
        found["notes"] = list(evidence.notes[:10])
    return found
