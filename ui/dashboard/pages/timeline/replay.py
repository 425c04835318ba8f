"""The ideal timeline of a step, computed in the background and bounded. Neighbouring steps share one replay."""

from functools import partial

import numpy as np

from diagnose.whatif.analysis import IdealSteps, NotReplayed, ideal_steps
from telemetry.errors import RankscopeError, UsageError
from ui.dashboard.data.core import Reads
from ui.dashboard.data.whatif import Asked, command
from ui.dashboard.defaults import chosen_step
from ui.dashboard.records import Ints, RunFacts
from ui.dashboard.view_state import StepRange, ViewState

STEPS = 20
"""What is usual is told from so many neighbouring steps."""


def asked_ideal(facts: RunFacts, step: int, reads: Reads) -> Asked:
    """The stored steps that a step is replayed with; fewer where they hold more operations than a page may cost."""
    stored = facts.steps.step
    near = stored[stored // STEPS == step // STEPS]
    asked = _asked(facts, near, reads)
    fits = max(1, reads.max_operations * len(near) // max(1, asked.num_operations))
    if fits >= len(near):
        return asked
    first = int(np.searchsorted(near, step)) // fits * fits
    return _asked(facts, near[first : first + fits], reads)


def ideal_of(facts: RunFacts, asked: Asked, reads: Reads) -> IdealSteps | NotReplayed:
    """The replay.

    Raises:
        StillWorking: it is not there yet.
        UsageError: not even one step can be held.
    """
    if asked.num_steps == 1 and asked.num_operations > reads.max_operations:
        raise UsageError(
            f"A step of this run has {asked.num_operations:,} operations: too many to replay for a page",
            hint=f"run this command to see the cost of slow ranks: {command(facts, asked)}",
        )
    return reads.background.get(_key(facts, asked), partial(_replay, facts, asked, reads))


def known_ideal(state: ViewState, facts: RunFacts, step: int, reads: Reads) -> IdealSteps | None:
    """The ideal timeline, where it is asked for, is there already, and speaks of the step. Waits for nothing."""
    if not state.ideal:
        return None
    asked = asked_ideal(facts, step, reads)
    if not reads.background.is_ready(_key(facts, asked)):
        return None
    found = ideal_of(facts, asked, reads)
    return found if isinstance(found, IdealSteps) and not found.refusal_of(step) else None


def look_for_ideal(state: ViewState, reads: Reads) -> list[object]:
    """What differs once the answer is there."""
    if not state.ideal:
        return []
    facts = reads.facts(state)
    try:
        asked = asked_ideal(facts, chosen_step(state, facts), reads) if len(facts.steps.step) else None
    except RankscopeError:
        return []
    return [] if asked is None else [*asked.steps, asked.num_operations, reads.background.is_ready(_key(facts, asked))]


def _asked(facts: RunFacts, steps: Ints, reads: Reads) -> Asked:
    window = StepRange(int(steps[0]), int(steps[-1]))
    return Asked(steps=window, num_steps=len(steps), num_operations=reads.num_operations(facts.summary, window))


def _key(facts: RunFacts, asked: Asked) -> tuple[str, str, int, Asked]:
    return "ideal", facts.summary.run_id, facts.summary.attempt, asked


def _replay(facts: RunFacts, asked: Asked, reads: Reads) -> IdealSteps | NotReplayed:
    return ideal_steps(reads.view(facts.summary, asked.steps))
