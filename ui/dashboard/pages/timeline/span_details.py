"""The details of one span, and the shares of each rank's step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import dash_mantine_components as dmc
import numpy as np
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.model.operations import recorded_masks
from telemetry.stages import STAGE_BY_CODE, Stage, StageClass, Stream
from ui.dashboard.figures.style import STAGE_COLOURS
from ui.dashboard.pages.panels import facts_list
from ui.dashboard.pages.timeline.bubbles import PipelineBubble
from ui.dashboard.pages.timeline.operation import Operation, operation_facts
from ui.dashboard.pages.timeline.peer_comparison import peer_comparison
from ui.dashboard.pages.timeline.step_shares import Gap, StepShares
from ui.dashboard.records import SPAN_COLUMNS, RunFacts, SpanColumns
from ui.dashboard.view_state import ViewState
from ui.dashboard.wording import class_name, duration, ranks_text, size

MAX_ROWS_IN_SIGHT = 24


def span_details(
    span: SpanColumns,
    others: SpanColumns,
    origin_ns: int,
    facts: RunFacts,
    state: ViewState,
    ideal_ns: int | None = None,
    operation: Operation | None = None,
    *,
    is_during_compute: bool = False,
) -> Component:
    """The facts of a span and its comparison with peers.

    Args:
        span: one row.
        others: spans of the same stage and step on its rank and its peers.
        origin_ns: the beginning of the step.
        ideal_ns: the duration of the span in the ideal step, if known.
        operation: the operation of the span, if other members are in the picture.
        is_during_compute: whether spans of this stage run beside compute.
    """
    stage = STAGE_BY_CODE[int(span.stage[0])]
    swatch = html.Span(className="swatch", style={"background": STAGE_COLOURS[stage]})
    of_operation = operation_facts(operation) if operation is not None else ()
    close = dcc.Link("Close", href=replace(state, span=None).search(), className="close")
    return dmc.Stack(
        [
            html.Div([html.H2([swatch, stage.label], className="panel-title"), close], className="details-head"),
            facts_list([*_facts(span, stage, origin_ns, facts, ideal_ns, operation), *of_operation]),
            peer_comparison(span, others, facts, is_during_compute=is_during_compute),
        ],
        gap="sm",
    )


def step_share_table(
    shares: list[StepShares],
    gaps: list[Gap],
    suspects: tuple[int, ...],
    bubbles: Sequence[PipelineBubble] = (),
    title: str = "Shares of the step",
    *,
    gathers_inside: bool = False,
) -> Component:
    """A table of the shares of each rank's step, the bubble of its pipeline, and the main cause of idle time. A kind of
    communication that no rank recorded has no column. ``gathers_inside``: parameters are gathered inside compute."""
    axes = [name for name in AXES if any(share.by_name()[name] for share in shares)]
    bubble_of = {rank: ns / bubble.window_ns for bubble in bubbles for rank, ns in bubble.bubble_ns.items()}
    parts = [*axes, "host", *["off CPU"] * any(share.off_cpu_ns for share in shares), "idle"]
    names = ["rank", *(f"{name} %" for name in ("compute", *parts, *["bubble"] * bool(bubbles)))]
    head = html.Tr([html.Th(name, scope="col") for name in names])
    rows = [_share_row(share, parts, bubble_of, share.rank in suspects) for share in shares]
    return dmc.Stack(
        [
            dmc.Title(title, order=2, className="panel-title"),
            scrolled(html.Table([html.Thead(head), html.Tbody(rows)], className="shares"), len(rows)),
            dmc.Text("Percent of the rank's step. Each moment counts in one column.", **_SMALL),
            *(dmc.Text(text, **_SMALL) for text in column_texts(shares, parts, gathers_inside=gathers_inside)),
            *([dmc.Text(_bubble_text(bubbles), **_SMALL)] if bubbles else []),
            dmc.Text(_idle_text(gaps), **_SMALL),
            dmc.Text("Click a span to see its details.", size="sm"),
        ],
        gap="xs",
    )


def scrolled(table: Component, num_rows: int) -> Component:
    """A table with many rows scrolls and is as high as the picture beside it."""
    if num_rows <= MAX_ROWS_IN_SIGHT:
        return table
    return html.Div(table, className="many-shares", tabIndex="0", role="region", **{"aria-label": "shares by rank"})


_SMALL = {"size": "xs", "c": "dimmed"}


def _facts(
    span: SpanColumns, stage: Stage, origin_ns: int, facts: RunFacts, ideal_ns: int | None, operation: Operation | None
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
            waited_ns = 0 if operation is None else operation.least_wait_ns(rank)
            yield "transfer rate, at least", f"{row['size_bytes'] / (row['duration_ns'] - waited_ns):.2f} GB/s"
    if row["op_seq"] > 0:
        yield "operation", f"number {row['op_seq']}"
    yield "class, stream", f"{class_name(stage.stage_class)}, {Stream(row['stream']).label}"
    yield "record", f"{rank}-{row['seq']}"


def _ideal_text(lasted_ns: int, ideal_ns: int) -> str:
    """The ideal duration and the difference to it, such as ``34.0 ms: 14.0 ms less``."""
    other = "less" if ideal_ns <= lasted_ns else "more"
    return f"{duration(ideal_ns)}: {duration(abs(lasted_ns - ideal_ns))} {other}"


AXES = ("tp", "cp", "ep", "pp", "dp")
"""Kinds of communication, in the order of the columns."""
COMPUTE_TEXT = "compute: the compute time of the heat map, for all compute stages."
WALL_TEXT = (
    "compute: time in compute spans, with any waiting inside. Compute time is not known, or the step has too many "
    "operations."
)
INSIDE_TEXT = "{axes}: inside a collective, including waiting. The rank does not compute during this time."
PP_TEXT = "pp: inside a transfer, including waiting, while the rank does not compute."
DP_TEXT = "dp: inside a collective of parameters or gradients, including waiting, while the rank does not compute."
GATHERS_TEXT = " This includes waiting for parameters in compute spans."
HOST_TEXT = "host: data loading, garbage collection, checkpoints and other host work, if no other column applies."
OFF_CPU_TEXT = (
    "off CPU: compute spans without processor time. The rank waited for a core, or for something not recorded."
)
IDLE_TEXT = "idle: nothing is recorded."


def column_texts(shares: Sequence[StepShares], columns: Sequence[str], *, gathers_inside: bool) -> Iterator[str]:
    """What each column means. ``columns``: all except the first and the bubble."""
    is_wall = all(share.basis is None for share in shares)
    yield WALL_TEXT if is_wall else COMPUTE_TEXT
    if inside := [name for name in columns if name in ("tp", "cp", "ep")]:
        yield INSIDE_TEXT.format(axes=", ".join(inside))
    if "pp" in columns:
        yield PP_TEXT
    if "dp" in columns:
        yield DP_TEXT + GATHERS_TEXT * (gathers_inside and not is_wall)
    yield HOST_TEXT
    if "off CPU" in columns:
        yield OFF_CPU_TEXT
    yield IDLE_TEXT


def _share_row(share: StepShares, columns: Sequence[str], bubble_of: Mapping[int, float], suspect: bool) -> Component:
    by_name = share.by_name()
    parts = (by_name[name] for name in ("compute", *columns))
    cells = [
        f"▶ {share.rank}" if suspect else str(share.rank),
        *(f"{100 * part / max(1, share.step_ns):.0f}" for part in parts),
        *([f"{100 * bubble_of[share.rank]:.0f}" if share.rank in bubble_of else ""] if bubble_of else []),
    ]
    return html.Tr([html.Td(cell) for cell in cells], className="suspect" if suspect else "")


def _bubble_text(bubbles: Sequence[PipelineBubble]) -> str:
    """The bubble of the pipelines, measured and in theory."""
    measured = np.mean([bubble.share for bubble in bubbles])
    first, over = bubbles[0], f", the mean of {len(bubbles)} pipelines" if len(bubbles) > 1 else ""
    text = (
        f"Bubble: the time between the first forward and the last backward of the pipeline in which a rank does not "
        f"compute. Measured {measured:.1%} of {duration(first.window_ns)}{over}"
    )
    if first.theoretical_share is None:
        return f"{text}. Microbatches were not recorded, so there is no theoretical value."
    formula = "(p - 1) / (m + p - 1)" if first.num_chunks == 1 else "(p - 1) / (v m + p - 1)"
    kind = "1F1B" if first.num_chunks == 1 else f"interleaved 1F1B with v = {first.num_chunks} chunks"
    return (
        f"{text}; in theory {first.theoretical_share:.1%}: {formula} of {kind}, with p = {len(first.bubble_ns)} stages "
        f"and m = {first.num_microbatches} microbatches."
    )


def _idle_text(gaps: list[Gap]) -> str:
    """The main cause of idle time over the ranks shown."""
    total: dict[str, int] = {}
    for gap in gaps:
        total[gap.cause] = total.get(gap.cause, 0) + gap.duration_ns
    if not total:
        return "No idle time: spans cover the whole step."
    cause = max(total, key=lambda name: total[name])
    return f"Most idle time: {cause} ({duration(total[cause])} over these ranks)."
