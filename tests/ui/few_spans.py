"""A few spans as columns, for tests of the timeline."""

import numpy as np

from diagnose.model.host_clocks import Alignment
from diagnose.model.run_state import Heard, RunState
from telemetry.stages import Stage
from telemetry.topology import Topology
from ui.dashboard.pages.timeline.selection import OneClock
from ui.dashboard.pages.timeline.spans_buffer import spans_buffer
from ui.dashboard.pages.timeline.step_shares import gaps_by_rank
from ui.dashboard.records import SPAN_COLUMNS, RunFacts, RunSummary, SpanColumns, StepTimes


def made_spans(*rows: tuple[int, Stage, int, int], **more: list[int]) -> SpanColumns:
    """Spans of rank, stage, start and duration, in nanoseconds, numbered in order. ``more``: other columns. Their
    default is 0, and -1 for microbatch, chunk and peer."""
    columns = {name: np.zeros(len(rows), dtype=np.int64) for name in SPAN_COLUMNS}
    columns |= {name: np.full(len(rows), -1, dtype=np.int64) for name in ("microbatch", "chunk", "peer")}
    columns["rank"] = np.array([row[0] for row in rows], dtype=np.int64)
    columns["stage"] = np.array([int(row[1]) for row in rows], dtype=np.int64)
    columns["stream"] = np.array([int(row[1].stream) for row in rows], dtype=np.int64)
    columns["start_ns"] = np.array([row[2] for row in rows], dtype=np.int64)
    columns["duration_ns"] = np.array([row[3] for row in rows], dtype=np.int64)
    columns["seq"] = np.arange(len(rows))
    columns |= {name: np.array(values, dtype=np.int64) for name, values in more.items()}
    return SpanColumns(**columns)


def made_facts(world_size: int) -> RunFacts:
    """A data-parallel run of so many ranks on one host."""
    topology = Topology(dp=world_size)
    summary = RunSummary(
        run_id="made",
        attempt=0,
        started_ns=0,
        last_ns=0,
        num_ranks=world_size,
        first_step=0,
        last_step=0,
        meta={},
        topology=topology,
        heard=Heard(state=RunState.ENDED, heard_ns=0),
    )
    none = np.empty(0, dtype=np.int64)
    steps = StepTimes(step=none, start_ns=none, duration_ns=none.astype(np.float64), num_ranks=none, num_spans=none)
    hosts = tuple("h" for _ in range(world_size))
    return RunFacts(
        summary=summary,
        topology=topology,
        hosts=hosts,
        local_ranks=(0,) * world_size,
        steps=steps,
        stages=(),
        num_spans=0,
    )


def buffer_of(spans: SpanColumns, names: dict[int, str], world_size: int = 8) -> dict[str, object]:
    """The data of the canvas. The spans belong to step 7. ``names``: the names of rows, by rank."""
    one_clock = OneClock(spans=spans, alignment=Alignment(num_hosts=1, bound_ns=0, unaligned=()))
    return spans_buffer(one_clock, gaps_by_rank(spans), names, 7, made_facts(world_size))
