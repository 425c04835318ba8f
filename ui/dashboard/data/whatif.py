"""The cost of slow ranks in some steps. Large analyses are bounded and run in the background.

The newest steps of a live run are replayed again after ten more complete steps, not after each step.
"""

from dataclasses import dataclass
from functools import partial

from diagnose.model.run_state import RunState
from diagnose.whatif.conclude import Conclusion, conclude
from telemetry.errors import UsageError
from ui.dashboard.data.core import Reads
from ui.dashboard.defaults import NEWEST_STEPS, chosen_steps
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import LARGEST, StepRange, ViewState

REPLAY_EVERY = 10
FEW_OPERATIONS = 200_000
"""A page waits for a replay of at most this many operations: less than a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """A range of steps to replay, and its number of operations now."""

    steps: StepRange
    num_steps: int
    num_operations: int


def replay_request(facts: RunFacts, state: ViewState, reads: Reads) -> ReplayRequest:
    """The steps of the address, or the newest complete steps.

    Raises:
        UsageError: the address asks for steps that are not stored.
    """
    steps = _complete_steps(facts, state)
    stored = facts.steps.step
    num_steps = int(((stored >= steps.first) & (stored <= steps.last)).sum())
    return ReplayRequest(steps=steps, num_steps=num_steps, num_operations=reads.num_operations(facts.summary, steps))


def whatif(facts: RunFacts, request: ReplayRequest, reads: Reads) -> Conclusion:
    """The replay and its conclusion.

    Raises:
        StillWorking: the replay of many operations is not ready.
        UsageError: even a single step has too many operations.
    """
    if request.num_operations > request.num_steps * reads.max_operations:
        operations = request.num_operations // request.num_steps
        raise UsageError(
            f"A step of this run holds {operations:,} operations: too many for this page",
            hint=f"run this command, which is limited only by memory: {command(facts, request)}",
        )
    answers = reads.analyses if _are_few(request) else reads.background
    return answers.get(_key(facts, request), partial(_conclude, facts, request, reads))


def whatif_freshness(state: ViewState, reads: Reads) -> list[object]:
    """A value that changes when the replay is ready."""
    facts = reads.facts(state)
    if not len(facts.steps.step):
        return []
    try:
        request = replay_request(facts, state, reads)
    except UsageError:
        return []
    is_ready = _are_few(request) or reads.background.is_ready(_key(facts, request))
    return [*request.steps, request.num_operations, is_ready]


def command(facts: RunFacts, request: ReplayRequest) -> str:
    """The command for the same analysis."""
    run, steps = facts.summary, request.steps
    return (
        f"rankscope diagnose whatif {run.run_id} --attempt {run.attempt} "
        f"--first-step {steps.first} --last-step {steps.last}"
    )


def _are_few(request: ReplayRequest) -> bool:
    return request.num_operations <= FEW_OPERATIONS


def _key(facts: RunFacts, request: ReplayRequest) -> tuple[str, int, ReplayRequest]:
    return facts.summary.run_id, facts.summary.attempt, request


def _conclude(facts: RunFacts, request: ReplayRequest, reads: Reads) -> Conclusion:
    return conclude(reads.view(facts.summary, request.steps))


def _complete_steps(facts: RunFacts, state: ViewState) -> StepRange:
    chosen = chosen_steps(state, facts)
    if state.steps is not None and state.steps.last != LARGEST:
        return chosen
    complete = facts.steps.complete(facts.topology.world_size)
    if facts.summary.state is RunState.LIVE and len(complete) > REPLAY_EVERY:
        complete = complete[: len(complete) // REPLAY_EVERY * REPLAY_EVERY]
    if state.steps is None:
        return StepRange(int(complete[max(0, len(complete) - NEWEST_STEPS)]), int(complete[-1]))
    inside = complete[complete >= chosen.first]
    return StepRange(chosen.first, int(inside[-1])) if len(inside) else chosen
