"""The state of every rank, during a hang or in a running job."""

from diagnose.hang.verdict import HangVerdict
from diagnose.model.run_state import RunState
from ui.dashboard.data.core import Reads
from ui.dashboard.defaults import suspects
from ui.dashboard.figures.standing import Standing, standing_of
from ui.dashboard.records import RankState, RunFacts


def standings(reads: Reads, facts: RunFacts, verdict: HangVerdict | None) -> list[Standing]:
    """By rank: the verdict's state; without one whether a finding names it, else what its agent last said."""
    world = facts.topology.world_size
    if verdict is not None:
        return [standing_of(verdict, rank) for rank in range(world)]
    accused = suspects(reads.reports.of(facts.summary))
    said, is_heard = last_said(reads, facts), facts.summary.state is not RunState.SILENT
    found = [_by_what_was_said(said.get(rank), is_heard) for rank in range(world)]
    return [
        Standing.SUSPECT if rank in accused and standing is not Standing.DEAD else standing
        for rank, standing in enumerate(found)
    ]


def last_said(reads: Reads, facts: RunFacts) -> dict[int, RankState]:
    """What each rank's agent last said of it; a rank that no agent watched is left out."""
    return {one.rank: one for one in reads.ranks(facts.summary)}


def _by_what_was_said(said: RankState | None, is_heard: bool) -> Standing:
    if said is None:
        return Standing.UNKNOWN
    if said.ended:
        return Standing.ENDED
    if not said.alive:
        return Standing.DEAD
    return Standing.RUNNING if is_heard else Standing.UNKNOWN
