"""Compute time as the detectors use it: all pages show these values."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from diagnose.findings import StepWindow
from diagnose.model.collectives import DP_STAGES
from diagnose.model.compute_time import WORK_STAGES
from diagnose.model.gathers import LEAST_GATHERS
from diagnose.model.load import load_compute_time
from diagnose.model.view import Work
from telemetry.stages import Stage
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Spans
from ui.dashboard.data.columns import span_columns
from ui.dashboard.data.core import Reads
from ui.dashboard.records import Ints, RunFacts, SpanColumns


def compute_times(
    reads: Reads, facts: RunFacts, steps: Ints, ranks: tuple[int, ...] | None = None
) -> Mapping[Stage, Work] | None:
    """Compute time of forward and backward, [steps, ranks]. None if it is not known, or has too many operations.

    Args:
        steps: stored steps, ascending.
        ranks: the ranks of the columns. Only their operations are loaded, and those of ranks that are measured together
            with them. If None, all ranks.
    """
    if not len(steps):
        return None
    run = facts.summary
    examined = reads.reports.newest_work(run)
    if examined is not None and examined.has(steps):
        columns = slice(None) if ranks is None else np.array(ranks, dtype=np.int64)
        return _chosen(examined.work, np.searchsorted(examined.steps, steps), columns)
    needed = _needed_ranks(reads, facts, int(steps[-1]), ranks)
    share = 1.0 if needed is None else len(needed) / facts.topology.world_size
    num_operations = facts.num_spans * len(steps) / max(1, len(facts.steps.step)) * share
    if not 0 < num_operations <= reads.max_own_operations:
        return None
    window = StepWindow(first_step=int(steps[0]), last_step=int(steps[-1]))

    def load(reader: Reader) -> dict[Stage, Work]:
        return _chosen(load_compute_time(reader, run.run_id, run.attempt, window, needed).work)

    key = "compute-time", window, None if needed is None else tuple(needed.tolist())
    loaded = reads.compute(run, key, load)
    if any(len(work.ns) != len(steps) for work in loaded.values()):
        return None
    return loaded if needed is None else _chosen(loaded, columns=np.searchsorted(needed, np.array(ranks)))


def runs_inside_compute(reads: Reads, facts: RunFacts, stage: Stage, step: int, ranks: tuple[int, ...] = (0,)) -> bool:
    """Whether gathers of parameters or reductions of gradients begin inside compute spans of one of these ranks.

    Such an operation runs beside compute. Its duration shows how far ahead a rank is, not how long it waited
    (``diagnose/model/gathers.py``). Collectives of other axes stop the compute, so they do not count.
    """
    if stage not in DP_STAGES or stage not in facts.stages:
        return False
    stages = tuple(int(each) for each in (*WORK_STAGES, stage))
    query = Spans(**facts.summary.key, first_step=step, last_step=step, ranks=ranks, stages=stages)
    spans = span_columns(reads.ask(facts.summary, query))
    return any(_num_inside(spans.where(spans.rank == rank), stage) >= LEAST_GATHERS for rank in np.unique(spans.rank))


def _num_inside(spans: SpanColumns, stage: Stage) -> int:
    """The number of operations of one rank that begin inside a compute span."""
    computes = spans.stage != stage
    begin, end = spans.start_ns[computes], spans.end_ns[computes]
    operations = spans.start_ns[~computes, None]
    return int(((begin <= operations) & (operations < end)).any(axis=1).sum())


def _needed_ranks(reads: Reads, facts: RunFacts, step: int, ranks: tuple[int, ...] | None) -> Ints | None:
    """The ranks whose operations are needed, ascending. If parameters are gathered inside compute spans, compute time
    depends on the peers (``diagnose/model/gathers.py``). None if all ranks are needed."""
    if ranks is None or not runs_inside_compute(reads, facts, Stage.PARAMS_ALL_GATHER, step, ranks):
        return None if ranks is None else np.unique(np.array(ranks, dtype=np.int64))
    peers = facts.topology.index["pp"]
    if facts.roles:
        peers = peers + facts.topology.pp * np.array(facts.role_numbers)
    return np.flatnonzero(np.isin(peers, peers[list(ranks)]))


def _chosen(
    works: Mapping[Stage, Work], rows: Ints | slice = slice(None), columns: Ints | slice = slice(None)
) -> dict[Stage, Work]:
    """Forward and backward of some steps and ranks, without the single operations."""
    return {
        stage: replace(works[stage], ns=works[stage].ns[rows][:, columns], each_ns=None)
        for stage in WORK_STAGES
        if stage in works
    }
