"""The cost of slow ranks in some steps. Large analyses are bounded and run in the background.

For a live run the newest steps are replayed again after ten more complete steps, not after every step.
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

ANEW_AFTER = 10
FEW_OPERATIONS = 200_000
"""So few are replayed within a second: a page waits for them, and they need not step back behind others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is replayed: a range of steps, and how many operations it holds by now."""

    steps: StepRange
    num_steps: int
    num_operations: int


def asked_for(facts: RunFacts, state: ViewState, reads: Reads) -> Asked:
    """The steps of the address, else the newest that are whole.

    Raises:
        UsageError: the address asks for steps that are not stored.
    """
    steps = _whole(facts, state)
    stored = facts.steps.step
    num_steps = int(((stored >= steps.first) & (stored <= steps.last)).sum())
    return Asked(steps=steps, num_steps=num_steps, num_operations=reads.num_operations(facts.summary, steps))


def whatif(facts: RunFacts, asked: Asked, reads: Reads) -> Conclusion:
    """Replay and conclusion.

    Raises:
        StillWorking: it is not there yet, of many operations.
        UsageError: not even one step can be held.
    """
    if asked.num_operations > asked.num_steps * reads.max_operations:
        raise UsageError(
            f"A step of this run holds {asked.num_operations // asked.num_steps:,} operations: too many for this page",
            hint=f"run this command, which is limited only by memory: {command(facts, asked)}",
        )
    key, conclude_it = _key(facts, asked), partial(_conclude, facts, asked, reads)
    return reads.analyses.get(key, conclude_it) if _are_few(asked) else reads.background.get(key, conclude_it)


def look_for_whatif(state: ViewState, reads: Reads) -> list[object]:
    """What differs once the answer is there."""
    facts = reads.facts(state)
    if not len(facts.steps.step):
        return []
    try:
        asked = asked_for(facts, state, reads)
    except UsageError:
        return []
    return [*asked.steps, asked.num_operations, _are_few(asked) or reads.background.is_ready(_key(facts, asked))]


def command(facts: RunFacts, asked: Asked) -> str:
    """The same question for the command line."""
    run, steps = facts.summary, asked.steps
    return (
        f"rankscope diagnose whatif {run.run_id} --attempt {run.attempt} "
        f"--first-step {steps.first} --last-step {steps.last}"
    )


def _are_few(asked: Asked) -> bool:
    return asked.num_operations <= FEW_OPERATIONS


def _key(facts: RunFacts, asked: Asked) -> tuple[str, int, Asked]:
    return facts.summary.run_id, facts.summary.attempt, asked


def _conclude(facts: RunFacts, asked: Asked, reads: Reads) -> Conclusion:
    return conclude(reads.view(facts.summary, asked.steps))


def _whole(facts: RunFacts, state: ViewState) -> StepRange:
    chosen = chosen_steps(state, facts)
    if state.steps is not None and state.steps.last != LARGEST:
        return chosen
    whole = facts.steps.complete(facts.topology.world_size)
    if facts.summary.state is RunState.LIVE and len(whole) > ANEW_AFTER:
        whole = whole[: len(whole) // ANEW_AFTER * ANEW_AFTER]
    if state.steps is None:
        return StepRange(int(whole[max(0, len(whole) - NEWEST_STEPS)]), int(whole[-1]))
    inside = whole[whole >= chosen.first]
    return StepRange(chosen.first, int(inside[-1])) if len(inside) else chosen
