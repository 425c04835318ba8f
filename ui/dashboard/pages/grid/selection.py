"""The rank and the steps that the grid page shows, with all defaults applied."""

from dataclasses import dataclass

from diagnose.hang.verdict import HangVerdict
from telemetry.errors import UsageError
from ui.dashboard.data import Reads
from ui.dashboard.defaults import chosen_steps, suspects
from ui.dashboard.records import RunFacts
from ui.dashboard.view_state import StepRange, ViewState


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSelection:
    """A run, why it stands still where it does, the rank that was chosen, and the steps that are looked at."""

    facts: RunFacts
    verdict: HangVerdict | None
    rank: int
    steps: StepRange


def selection(state: ViewState, reads: Reads) -> RankSelection:
    """The rank of the address, else the first that holds others up, else the first that a finding names, else 0.

    Raises:
        UsageError: the address names a rank beyond the grid, or steps that are not stored.
    """
    facts = reads.facts(state)
    verdict, world = reads.hang(facts), facts.topology.world_size
    rank = _first_to_look_at(facts, verdict, reads) if state.rank is None else state.rank
    if rank >= world:
        raise UsageError(f"There is no rank {rank}", hint=f"this run has ranks 0 to {world - 1}")
    return RankSelection(facts=facts, verdict=verdict, rank=rank, steps=chosen_steps(state, facts))


def _first_to_look_at(facts: RunFacts, verdict: HangVerdict | None, reads: Reads) -> int:
    if verdict is None:
        named: tuple[int, ...] = suspects(reads.reports.of(facts.summary))
    else:
        named = (*verdict.initiating, *verdict.waits)
    return next((rank for rank in named if rank < facts.topology.world_size), 0)
