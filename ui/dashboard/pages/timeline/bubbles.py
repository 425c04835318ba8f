"""The bubble of a pipeline: the time in which a rank does not compute, from the first forward to the last backward.

    pp0   F0 F1 .. B0 .. B1
    pp1   .. F0 B0 F1 B1 ..
          |<-- window --->|      ..: bubble

Theory: with p stages, m microbatches and v chunks, (p - 1) / (v m + p - 1) of the window, if all microbatches take
equally long and transfers take no time (Narayanan et al. 2021, arXiv 2104.04473, sections 2.2.1 and 2.2.2, as a share
of the window instead of the compute time).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from telemetry.stages import Stage
from telemetry.topology import Topology
from ui.dashboard.pages.timeline.step_shares import covered_ns
from ui.dashboard.records import SpanColumns

FORWARD_AND_BACKWARD = (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineBubble:
    """The bubble of one pipeline in one step. Its ranks have the same coordinates except pp."""

    window_ns: int
    bubble_ns: Mapping[int, int]
    """Bubble of each rank."""
    num_microbatches: int
    """0 if microbatches were not recorded."""
    num_chunks: int

    @property
    def share(self) -> float:
        """The mean bubble of the ranks, as a share of the window."""
        return float(np.mean([*self.bubble_ns.values()])) / self.window_ns

    @property
    def theoretical_share(self) -> float | None:
        """The bubble of 1F1B, or of interleaved 1F1B for several chunks. None if microbatches were not recorded."""
        if not self.num_microbatches:
            return None
        num_stages = len(self.bubble_ns)
        return (num_stages - 1) / (self.num_chunks * self.num_microbatches + num_stages - 1)


def pipeline_bubbles(spans: SpanColumns, topology: Topology) -> list[PipelineBubble]:
    """The bubble of each pipeline, in the order of first ranks. All ranks of a pipeline must have compute spans.

    ``spans``: those of one step on one clock, ordered by rank and start.
    """
    if topology.pp < 2:
        return []
    compute = spans.where(np.isin(spans.stage, FORWARD_AND_BACKWARD))
    present = set(np.unique(compute.rank).tolist())
    pipelines = dict.fromkeys(topology.group(rank, along="pp") for rank in sorted(present))
    return [_bubble(compute, ranks) for ranks in pipelines if present.issuperset(ranks)]


def _bubble(compute: SpanColumns, ranks: tuple[int, ...]) -> PipelineBubble:
    of_pipeline = compute.where(np.isin(compute.rank, ranks))
    window_ns = int(of_pipeline.end_ns.max() - of_pipeline.start_ns.min())
    by_rank = {rank: of_pipeline.where(of_pipeline.rank == rank) for rank in ranks}
    busy_ns = {rank: covered_ns(of_rank.start_ns, of_rank.end_ns) for rank, of_rank in by_rank.items()}
    return PipelineBubble(
        window_ns=max(1, window_ns),
        bubble_ns={rank: window_ns - busy for rank, busy in busy_ns.items()},
        num_microbatches=len(np.unique(of_pipeline.microbatch[of_pipeline.microbatch >= 0])),
        num_chunks=max(1, int(of_pipeline.chunk.max()) + 1),
    )
