"""Histories of short runs. Times are in seconds, and a run begins at second 0."""

from collections.abc import Sequence

import numpy as np

from diagnose.goodput.records import AttemptFacts, DriverDecision, Ending, Ledger, RunHistory, StepTimes

S = 1_000_000_000
EPOCH_NS = 1_790_000_000 * S


def at(second: float) -> int:
    """A second of the run as wall clock."""
    return EPOCH_NS + round(second * S)


def steps(
    first: int, count: int, *, begin_s: float, step_s: float = 1.0, between_s: float = 0.0, warm_up_s: float = 0.0
) -> StepTimes:
    """Equal steps, one after the other. The first one is longer by ``warm_up_s``."""
    number = np.arange(first, first + count, dtype=np.int64)
    is_later = number > first
    start_s = begin_s + (number - first) * (step_s + between_s) + is_later * warm_up_s
    return StepTimes(
        number=number,
        start_ns=np.array([at(second) for second in start_s], np.int64),
        duration_ns=np.where(is_later, round(step_s * S), round((step_s + warm_up_s) * S)).astype(np.int64),
    )


def attempt(
    number: int,
    started_s: float,
    made: StepTimes | None = None,
    *,
    heard_s: float,
    ending: Ending = Ending.WELL,
    interrupted_s: float | None = None,
    saved_s: float | None = None,
    snapshots: StepTimes | None = None,
    has_stalled: bool = False,
) -> AttemptFacts:
    """An attempt of four ranks."""
    return AttemptFacts(
        attempt=number,
        started_ns=at(started_s),
        heard_ns=at(heard_s),
        steps=made or StepTimes(),
        snapshots=snapshots or StepTimes(),
        ending=ending,
        num_ranks=0 if ending is Ending.UNKNOWN else 4,
        num_failed=4 if ending is Ending.FAILED else 0,
        num_well=4 if ending is Ending.WELL else 0,
        has_stalled=has_stalled,
        interrupted_ns=0 if interrupted_s is None else at(interrupted_s),
        saved_ns=0 if saved_s is None else at(saved_s),
    )


def decisions(*told: tuple[float, int, str] | tuple[float, int, str, str]) -> tuple[DriverDecision, ...]:
    """From (second, attempt, name) or (second, attempt, name, node)."""
    return tuple(
        DriverDecision(at_ns=at(second), attempt=number, name=name, reason=f"why {name}", node=node[0] if node else "")
        for second, number, name, *node in told
    )


def history(*attempts: AttemptFacts, decided: Sequence[DriverDecision] = ()) -> RunHistory:
    """A run."""
    return RunHistory(run_id="run", attempts=attempts, decisions=tuple(decided))


def seconds(ledger: Ledger) -> dict[str, float]:
    """Classes that are not empty."""
    return {str(name): ns / S for name, ns in ledger.classes_ns.items() if ns}
