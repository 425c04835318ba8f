"""The comparison of a span's stage with the same stage on other ranks."""

import dash_mantine_components as dmc
import numpy as np
from dash import html
from dash.development.base_component import Component

from diagnose.model.partners import COLLECTIVES
from telemetry.stages import STAGE_BY_CODE, Stage, StageClass
from telemetry.stores.queries import Spans
from ui.dashboard.data import Reads
from ui.dashboard.data.columns import span_columns
from ui.dashboard.records import Floats, RunFacts, SpanColumns
from ui.dashboard.wording import capitalized, count, duration, during_compute, unbroken

MAX_PEERS = 12
WAITING = "In each group, the last rank to start has the shortest time: the others waited for it."
WAITING_FOR_PARTNER = "A long time can be waiting for the other rank of the transfer."


def same_work(reads: Reads, facts: RunFacts, span: SpanColumns) -> SpanColumns:
    """Spans of the same stage in the same step, on the rank itself and its peers (same pipeline stage and role)."""
    group, step = facts.topology.index["pp"], int(span.step[0])
    if facts.roles:
        group = group + facts.topology.pp * np.array(facts.role_numbers)
    peers = tuple(np.flatnonzero(group == group[int(span.rank[0])]).tolist())
    stages = (int(span.stage[0]),)
    query = Spans(**facts.summary.key, first_step=step, last_step=step, ranks=peers, stages=stages)
    return span_columns(reads.ask(facts.summary, query))


def peer_comparison(
    span: SpanColumns, same_work: SpanColumns, facts: RunFacts, *, is_during_compute: bool = False
) -> Component:
    """The total time of a stage on each rank, in the microbatch and chunk of a span. Computation is compared with the
    median of the peers, by processor time if it was measured for all of them. Communication has no ratio: its time
    contains waiting, and is the shortest on the rank that the others wait for.

    Args:
        span: one row.
        same_work: what the function of this name returns.
        is_during_compute: whether spans of this stage run beside compute: their duration is not waiting time.
    """
    stage = STAGE_BY_CODE[int(span.stage[0])]
    waits = stage.stage_class is StageClass.COMMUNICATION
    rows = same_work.where((same_work.microbatch == span.microbatch[0]) & (same_work.chunk == span.chunk[0]))
    by_cpu = bool(not waits and len(rows) and (rows.cpu_ns >= 0).all())
    time = np.asarray(rows.cpu_ns if by_cpu else rows.duration_ns, dtype=np.float64)
    ranks = np.unique(rows.rank)
    total: Floats = np.array([time[rows.rank == rank].sum() for rank in ranks])
    mine = int(span.rank[0])
    peers = total[ranks != mine]
    if not len(peers):
        return dmc.Text("No peer recorded the same work, so there is no comparison.", size="sm", c="dimmed")
    here, usual = float(total[ranks == mine][0]), float(np.median(peers))
    heading = _times(here, usual) if waits else _ratio(here, usual)
    order = np.argsort(-total)[:MAX_PEERS]
    bars = [_peer_bar(int(ranks[at]), float(total[at]), float(total.max()), int(ranks[at]) == mine) for at in order]
    what = "processor time" if by_cpu else "wall time" + ", including waiting" * (not is_during_compute)
    how = [during_compute(stage)] if is_during_compute else _waiting(stage)
    lines = [f"{capitalized(_extent(span, rows))}: {what}. Peers: {_peers(facts)}.", *how]
    return html.Div(
        [
            dmc.Text(heading, fw=600),
            *(dmc.Text(line, size="xs", c="dimmed", mb=6) for line in lines),
            *bars,
        ],
        className="comparison",
    )


def _times(here_ns: float, usual_ns: float) -> str:
    return f"{unbroken(duration(here_ns))}; median of its peers: {unbroken(duration(usual_ns))}"


def _ratio(here_ns: float, usual_ns: float) -> str:
    return f"{here_ns / max(1.0, usual_ns):.2f}x its peers"


def _extent(span: SpanColumns, rows: SpanColumns) -> str:
    """Which spans a bar contains."""
    number = int((rows.rank == span.rank[0]).sum())
    where = f"microbatch {int(span.microbatch[0])}" if span.microbatch[0] >= 0 else f"step {int(span.step[0])}"
    chunk = f", chunk {int(span.chunk[0])}" if span.chunk[0] > 0 else ""
    return f"{where}{chunk}" if number == 1 else f"sum of the {count(number, 'span')} of this stage in {where}{chunk}"


def _peers(facts: RunFacts) -> str:
    same = ["pipeline stage"] * (facts.topology.pp > 1) + ["role"] * bool(facts.roles)
    return f"the same {' and '.join(same)}" if same else "all other ranks"


def _waiting(stage: Stage) -> list[str]:
    """How to read the times of a stage that contain waiting."""
    if stage.stage_class is not StageClass.COMMUNICATION:
        return []
    return [WAITING if stage in COLLECTIVES else WAITING_FOR_PARTNER]


def _peer_bar(rank: int, ns: float, longest_ns: float, mine: bool) -> Component:
    width = f"{100 * ns / max(1.0, longest_ns):.1f}%"
    return html.Div(
        [
            html.Span(f"rank {rank}", className="peer-name"),
            html.Span(html.Span(style={"width": width}, className="peer-fill"), className="peer-track"),
            html.Span(duration(ns), className="peer-value"),
        ],
        className="peer mine" if mine else "peer",
    )
