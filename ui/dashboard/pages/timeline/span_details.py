"""The details of one span, and its comparison with the same work on its peers."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import dash_mantine_components as dmc
import numpy as np
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.model.operations import recorded_masks
from telemetry.stages import STAGE_BY_CODE, Stage, StageClass, Stream
from telemetry.stores.queries import Spans
from ui.dashboard.data import Reads
from ui.dashboard.data.columns import span_columns
from ui.dashboard.figures.style import STAGE_COLOURS
from ui.dashboard.pages.panels import facts_list
from ui.dashboard.pages.timeline.step_shares import Gap, StepShares
from ui.dashboard.records import SPAN_COLUMNS, Floats, RunFacts, SpanColumns
from ui.dashboard.view_state import ViewState
from ui.dashboard.wording import class_name, duration, ranks_text, size

MAX_PEERS = 12
MAX_ROWS_IN_SIGHT = 24


def span_details(
    span: SpanColumns,
    others: SpanColumns,
    origin_ns: int,
    facts: RunFacts,
    state: ViewState,
    ideal_ns: int | None = None,
) -> Component:
    """The facts of a span and its comparison with peers.

    Args:
        span: one row.
        others: spans of the same stage and step on its rank and its peers.
        origin_ns: the beginning of the step.
        ideal_ns: the duration of the span in the ideal step, if known.
    """
    stage = STAGE_BY_CODE[int(span.stage[0])]
    swatch = html.Span(className="swatch", style={"background": STAGE_COLOURS[stage]})
    close = dcc.Link("Close", href=replace(state, span=None).search(), className="close")
    return dmc.Stack(
        [
            html.Div([html.H2([swatch, stage.label], className="panel-title"), close], className="details-head"),
            facts_list(_facts(span, stage, origin_ns, facts, ideal_ns)),
            _comparison(span, others),
        ],
        gap="sm",
    )


def same_work(reads: Reads, facts: RunFacts, span: SpanColumns) -> SpanColumns:
    """Spans of the same stage in the same step, on the rank itself and its peers (same pipeline stage and role)."""
    group, step = facts.topology.index["pp"], int(span.step[0])
    if facts.roles:
        group = group + facts.topology.pp * np.array(facts.role_numbers)
    peers = tuple(np.flatnonzero(group == group[int(span.rank[0])]).tolist())
    stages = (int(span.stage[0]),)
    query = Spans(**facts.summary.key, first_step=step, last_step=step, ranks=peers, stages=stages)
    return span_columns(reads.ask(facts.summary, query))


def where_the_step_went(shares: list[StepShares], gaps: list[Gap], suspects: tuple[int, ...]) -> Component:
    """A table of the shares of each rank's step, and the main cause of idle time. A kind of communication that no rank
    recorded has no column."""
    axes = [name for name in AXES if any(_by_axis(share)[name] for share in shares)]
    head = html.Tr([html.Th(name) for name in ("rank", "compute", *axes, "host", "idle")])
    rows = [_share_row(share, axes, share.rank in suspects) for share in shares]
    return dmc.Stack(
        [
            dmc.Title("Where the step went", order=2, className="panel-title"),
            _scrolled(html.Table([html.Thead(head), html.Tbody(rows)], className="shares"), len(rows)),
            dmc.Text(
                "Percent of the rank's step."
                + f" {', '.join(axes)}: time inside a collective or transfer, including waiting." * bool(axes),
                **_SMALL,
            ),
            dmc.Text(_idle_text(gaps), **_SMALL),
            dmc.Text("Click a span to see its details.", size="sm"),
        ],
        gap="xs",
    )


def _scrolled(table: Component, num_rows: int) -> Component:
    """A table with many rows scrolls and is as high as the picture beside it."""
    if num_rows <= MAX_ROWS_IN_SIGHT:
        return table
    return html.Div(table, className="many-shares", tabIndex="0", role="region", **{"aria-label": "shares by rank"})


_SMALL = {"size": "xs", "c": "dimmed"}


def _facts(
    span: SpanColumns, stage: Stage, origin_ns: int, facts: RunFacts, ideal_ns: int | None
) -> Iterator[tuple[str, str]]:
    row = {name: int(getattr(span, name)[0]) for name in SPAN_COLUMNS}
    rank = row["rank"]
    yield "rank", str(rank)
    yield "place", facts.place(rank)
    yield "host", facts.hosts[rank] or "unknown"
    yield "step", str(row["step"])
    yield "start in the step", duration(max(0, row["start_ns"] - origin_ns))
    yield "duration", duration(row["duration_ns"])
    if ideal_ns is not None:
        yield "ideal", _ideal_text(row["duration_ns"], ideal_ns)
    if row["cpu_ns"] >= 0:
        yield "processor time", f"{duration(row['cpu_ns'])} ({row['cpu_ns'] / max(1, row['duration_ns']):.0%})"
    if row["issue_ns"] > 0:
        yield "issued before start", duration(max(0, row["start_ns"] - row["issue_ns"]))
    if row["microbatch"] >= 0:
        yield "microbatch", str(row["microbatch"])
    if row["chunk"] >= 0:
        yield "chunk", str(row["chunk"])
    if row["peer"] >= 0:
        yield "peer", f"rank {row['peer']}"
    if mask := int(recorded_masks(span.peer[:1], facts.topology)[0]):
        members = ranks_text(facts.topology.group_of(rank, mask))
        yield "group", f"{' x '.join(facts.topology.axes_of(mask))}: ranks {members}"
    if row["size_bytes"] > 0:
        yield "size", size(row["size_bytes"])
        if stage.stage_class is StageClass.COMMUNICATION and row["duration_ns"] > 0:
            yield "bandwidth, at most", f"{row['size_bytes'] / row['duration_ns']:.2f} GB/s"
    if row["op_seq"] > 0:
        yield "operation", f"number {row['op_seq']}"
    yield "class, stream", f"{class_name(stage.stage_class)}, {Stream(row['stream']).label}"
    yield "record", f"{rank}-{row['seq']}"


def _ideal_text(lasted_ns: int, ideal_ns: int) -> str:
    """``34.0 ms: 14.0 ms less``."""
    other = "less" if ideal_ns <= lasted_ns else "more"
    return f"{duration(ideal_ns)}: {duration(abs(lasted_ns - ideal_ns))} {other}"


def _comparison(span: SpanColumns, same_work: SpanColumns) -> Component:
    """The same microbatch and chunk on the peers, by processor time if it was measured for all of them."""
    rows = same_work.where((same_work.microbatch == span.microbatch[0]) & (same_work.chunk == span.chunk[0]))
    by_cpu = bool(len(rows) and (rows.cpu_ns >= 0).all())
    time = np.asarray(rows.cpu_ns if by_cpu else rows.duration_ns, dtype=np.float64)
    ranks = np.unique(rows.rank)
    total: Floats = np.array([time[rows.rank == rank].sum() for rank in ranks])
    mine = int(span.rank[0])
    peers = total[ranks != mine]
    if not len(peers):
        return dmc.Text("No peer recorded the same work, so there is no comparison.", size="sm", c="dimmed")
    ratio = float(total[ranks == mine][0] / max(1.0, float(np.median(peers))))
    what = "processor time" if by_cpu else "wall time, including waiting"
    order = np.argsort(-total)[:MAX_PEERS]
    bars = [_peer_bar(int(ranks[at]), float(total[at]), float(total.max()), int(ranks[at]) == mine) for at in order]
    microbatch = f", microbatch {int(span.microbatch[0])}" if span.microbatch[0] >= 0 else ""
    return html.Div(
        [
            dmc.Text(f"{ratio:.2f}x its peers", fw=600),
            dmc.Text(f"{what}{microbatch}; peers: the same pipeline stage", size="xs", c="dimmed", mb=6),
            *bars,
        ],
        className="comparison",
    )


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


AXES = ("tp", "cp", "ep", "pp", "dp")
"""Kinds of communication, in the order of the columns."""


def _by_axis(share: StepShares) -> dict[str, int]:
    times = (share.tensor_ns, share.context_ns, share.expert_ns, share.pipeline_ns, share.data_ns)
    return dict(zip(AXES, times, strict=True))


def _share_row(share: StepShares, axes: Sequence[str], suspect: bool) -> Component:
    by_axis = _by_axis(share)
    parts = (share.compute_ns, *(by_axis[name] for name in axes), share.host_ns, share.idle_ns)
    cells = [
        f"▶ {share.rank}" if suspect else str(share.rank),
        *(f"{100 * part / max(1, share.step_ns):.0f}" for part in parts),
    ]
    return html.Tr([html.Td(cell) for cell in cells], className="suspect" if suspect else "")


def _idle_text(gaps: list[Gap]) -> str:
    """The main cause of idle time over the ranks shown."""
    total: dict[str, int] = {}
    for gap in gaps:
        total[gap.cause] = total.get(gap.cause, 0) + gap.duration_ns
    if not total:
        return "No idle time: spans cover the whole step."
    cause = max(total, key=lambda name: total[name])
    return f"Most idle time: {cause} ({duration(total[cause])} over these ranks)."
