"""The rank and the steps that the grid page shows, with all defaults applied."""

from collections.abc import Sequence
from dataclasses import dataclass

from diagnose.hang.verdict import HangVerdict
from diagnose.model.run_state import RunState
from ui.dashboard.data import Reads
from ui.dashboard.defaults import chosen_rank, chosen_steps, suspects
from ui.dashboard.figures.hang import Standing, standing_of
from ui.dashboard.records import RankState, RunFacts
from ui.dashboard.view_state import StepRange, ViewState


def standings(reads: Reads, facts: RunFacts, verdict: HangVerdict | None) -> list[Standing]:
    """By rank: the state in the verdict. Without a verdict: suspect, or the state of the last heartbeat."""
    world = facts.topology.world_size
    if verdict is not None:
        return [standing_of(verdict, rank) for rank in range(world)]
    accused = suspects(reads.reports.of(facts.summary))
    reported, is_heard = reported_states(reads, facts), facts.summary.state is not RunState.SILENT
    found = [_standing_of_report(reported.get(rank), is_heard) for rank in range(world)]
    return [
        Standing.SUSPECT if rank in accused and standing is not Standing.DEAD else standing
        for rank, standing in enumerate(found)
    ]


def reported_states(reads: Reads, facts: RunFacts) -> dict[int, RankState]:
    """The last heartbeat by rank. Empty if no agent watched the run."""
    return {state.rank: state for state in reads.ranks(facts.summary)}


def _standing_of_report(reported: RankState | None, is_heard: bool) -> Standing:
    if reported is None:
        return Standing.UNKNOWN
    if reported.ended:
        return Standing.ENDED
    if not reported.alive:
        return Standing.DEAD
    return Standing.RUNNING if is_heard else Standing.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSelection:
    """A run, its verdict if it is stalled, the chosen rank, and the steps."""

    facts: RunFacts
    verdict: HangVerdict | None
    rank: int
    steps: StepRange


def selection(state: ViewState, reads: Reads) -> RankSelection:
    """The rank of the address. Otherwise the first rank that is behind, the first suspect, or rank 0.

    Raises:
        UsageError: the address names a rank that does not exist, or steps that are not stored.
    """
    facts = reads.facts(state)
    verdict = reads.hang(facts)
    named: Sequence[int] = ()
    if verdict is not None:
        named = (*verdict.initiating, *verdict.waits)
    elif state.rank is None:
        named = suspects(reads.reports.of(facts.summary))
    rank = chosen_rank(state, facts, named)
    return RankSelection(facts=facts, verdict=verdict, rank=rank, steps=chosen_steps(state, facts))
