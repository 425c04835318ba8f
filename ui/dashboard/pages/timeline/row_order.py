"""The order of the rows: by rank, host, compute time, or end of the step."""

import numpy as np

from telemetry.stages import Stage
from ui.dashboard.data import Reads
from ui.dashboard.data.compute_times import compute_times
from ui.dashboard.pages.fleet.curves import natural
from ui.dashboard.pages.timeline.selection import StepSelection, spans
from ui.dashboard.pages.timeline.step_shares import StepCompute, StepShares, shares_by_rank
from ui.dashboard.timeline_view import RankOrder


def ordered_ranks(order: RankOrder, shown: StepSelection, reads: Reads) -> tuple[int, ...]:
    """The ranks of the picture from the top. By compute time or end of the step, the longest or latest is first. Pinned
    ranks are drawn above all others."""
    ranks = sorted(shown.rows.ranks)
    if order is RankOrder.RANK:
        return shown.rows.ranks
    if order is RankOrder.HOST:
        return tuple(sorted(ranks, key=lambda rank: natural(shown.facts.hosts[rank])))
    values = _compute_ns(shown, reads) if order is RankOrder.COMPUTE else _end_ns(shown, reads)
    return tuple(sorted(ranks, key=lambda rank: -values.get(rank, 0)))


def shares_of_step(shown: StepSelection, reads: Reads) -> list[StepShares]:
    """The shares of each rank in the chosen step, by rank."""

    def compute() -> list[StepShares]:
        return shares_by_rank(shown.of_step(spans(shown, reads)), _compute_of_step(shown, reads))

    return reads.cached(shown.facts.summary, ("shares", shown.step, shown.steps, shown.rows.ranks), compute)


def _compute_of_step(shown: StepSelection, reads: Reads) -> StepCompute | None:
    """Compute time of the ranks in the chosen step, as on the heat map. None if it is not known."""
    if shown.step not in shown.facts.steps.step:
        return None
    ranks = shown.rows.ranks
    works = compute_times(reads, shown.facts, np.array([shown.step]), ranks)
    if not works:
        return None
    ns = np.stack([work.ns[0] for work in works.values()])
    known = np.isfinite(ns).any(axis=0)  # a rank without a forward or without a backward has the other one
    total = np.nansum(ns, axis=0)
    return StepCompute(
        ns={rank: float(total[at]) for at, rank in enumerate(ranks) if known[at]},
        basis=next(iter(works.values())).basis,
    )


def _compute_ns(shown: StepSelection, reads: Reads) -> dict[int, int]:
    """Compute time of each rank in the chosen step: the column *compute* of the table beside the picture."""
    return {share.rank: share.compute_ns for share in shares_of_step(shown, reads)}


def _end_ns(shown: StepSelection, reads: Reads) -> dict[int, int]:
    """End of the chosen step on each rank, on the clock of the picture. In an unfinished step, end of the last
    record."""
    of_step = shown.of_step(spans(shown, reads))
    if (of_step.stage == Stage.STEP).any():
        of_step = of_step.where(of_step.stage == Stage.STEP)
    return {rank: int(of_step.end_ns[of_step.rank == rank].max()) for rank in np.unique(of_step.rank).tolist()}
