"""All spans of the picture as a table, in pages. A column sorts it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlencode

import dash_mantine_components as dmc
import numpy as np
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.model.operations import recorded_masks
from telemetry.stages import STAGE_BY_CODE, Stage
from ui.dashboard.data import Reads
from ui.dashboard.pages.fleet.curves import natural
from ui.dashboard.pages.timeline.selection import num_left_out, selection, spans
from ui.dashboard.records import Ints, RunFacts, SpanColumns
from ui.dashboard.timeline_view import SpanColumn, TableView
from ui.dashboard.view_state import SpanKey, ViewState
from ui.dashboard.wording import count

ROWS = 50
"""Rows on one page."""
UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table. ``title``: its title with the unit. ``sort_key``: returns the sort key of each row.
    ``text``: returns the text of one row."""

    title: str
    sort_key: Callable[[SpanColumns, RunFacts], Ints]
    text: Callable[[SpanColumns, int, RunFacts], str]


def _number(title: str, name: str, least: int = 0) -> Column:
    """A column of whole numbers. A value below ``least`` means that the span has none."""

    def text(found: SpanColumns, row: int, _: RunFacts) -> str:
        value = int(getattr(found, name)[row])
        return f"{value:,}" if value >= least else UNKNOWN

    return Column(title, lambda found, _: np.asarray(getattr(found, name)), text)


def _amount(title: str, name: str, divisor: float, digits: int, least: int = 0) -> Column:
    def text(found: SpanColumns, row: int, _: RunFacts) -> str:
        value = int(getattr(found, name)[row])
        return f"{value / divisor:,.{digits}f}" if value >= least else UNKNOWN

    return Column(title, lambda found, _: np.asarray(getattr(found, name)), text)


def _by_name(names: list[str]) -> Ints:
    """The place of each name in their natural order."""
    place = {name: at for at, name in enumerate(sorted(set(names), key=natural))}
    return np.array([place[name] for name in names], dtype=np.int64)


def _host(found: SpanColumns, row: int, facts: RunFacts) -> str:
    return facts.hosts[int(found.rank[row])] or "unknown"


def _stage(found: SpanColumns, row: int, _: RunFacts) -> str:
    return STAGE_BY_CODE[int(found.stage[row])].label


def _partner(found: SpanColumns, row: int, facts: RunFacts) -> str:
    """The other rank of a transfer, such as ``rank 3``, or the axes of a collective."""
    if (peer := int(found.peer[row])) >= 0:
        return f"rank {peer}"
    mask = int(recorded_masks(found.peer[row : row + 1], facts.topology)[0])
    return " x ".join(facts.topology.axes_of(mask)) if mask else UNKNOWN


COLUMNS: Mapping[SpanColumn, Column] = {
    SpanColumn.RANK: _number("rank", "rank"),
    SpanColumn.HOST: Column(
        "host", lambda found, facts: _by_name([*facts.hosts])[found.rank], _host
    ),
    SpanColumn.STAGE: Column(
        "stage", lambda found, _: _by_name([stage.label for stage in _stages(found)]), _stage
    ),
    SpanColumn.STEP: _number("step", "step"),
    SpanColumn.MICROBATCH: _number("microbatch", "microbatch"),
    SpanColumn.CHUNK: _number("chunk", "chunk"),
    SpanColumn.START: _amount("start, ms", "start_ns", 1e6, 3),
    SpanColumn.DURATION: _amount("duration, ms", "duration_ns", 1e6, 3),
    SpanColumn.CPU: _amount("processor time, ms", "cpu_ns", 1e6, 3),
    SpanColumn.SIZE: _amount("size, KiB", "size_bytes", 1024, 1, least=1),
    SpanColumn.PARTNER: Column("with", lambda found, _: found.peer, _partner),
    SpanColumn.NUMBER: _number("operation", "op_seq", least=1),
}  # fmt: skip


def _stages(found: SpanColumns) -> Iterator[Stage]:
    return (STAGE_BY_CODE[code] for code in found.stage.tolist())


def draw_span_table(state: ViewState, reads: Reads) -> Component | None:
    """A page of the table, or a button that shows the table if it is hidden."""
    shown = selection(state, reads)
    found, view = spans(shown, reads), state.timeline.table
    if not len(found):
        return None
    if view is None:
        text = f"Show {count(len(found), 'span')} as a table"
        return html.Section([_button(text, TableView())], className="links")
    run, steps = shown.facts.summary, shown.steps
    unloaded = num_left_out(reads, run, steps.first, shown.rows.ranks, steps.last)
    origin_ns = int(found.start_ns.min())
    found = replace(found, start_ns=found.start_ns - origin_ns)
    rows = sorted_rows(found, view, shown.facts)
    num_pages = -(-len(rows) // ROWS)
    page = min(view.page, num_pages)
    here = rows[(page - 1) * ROWS : page * ROWS]
    left_out = f" Not listed: {count(unloaded, 'short span')} of lanes with too many spans." if unloaded else ""
    body = [_row(found, row, shown.facts, state) for row in here.tolist()]
    table = html.Table([html.Thead(_head(view)), html.Tbody(body)], className="shares span-table")
    scroll = html.Div(table, className="span-table-scroll", tabIndex="0", role="region", **{"aria-label": "all spans"})
    note = f"Times count from the start of the earliest span. Choose a stage to see the span in the picture.{left_out}"
    title = html.Div([html.H2("All spans", className="panel-title"), _button("Hide table", None)], className="titled")
    parts = [title, dmc.Text(note, size="xs", c="dimmed"), scroll, _pages(view, page, num_pages, len(rows))]
    return html.Section(parts, className="panel")


def sorted_rows(found: SpanColumns, view: TableView, facts: RunFacts) -> Ints:
    """Rows in the order of the chosen column, then by rank and start."""
    key = COLUMNS[view.column].sort_key(found, facts)
    return np.lexsort((found.start_ns, found.rank, -key if view.is_descending else key))


def _head(view: TableView) -> Component:
    return html.Tr([_heading(name, column, view) for name, column in COLUMNS.items()])


def _heading(name: SpanColumn, column: Column, view: TableView) -> Component:
    """A button that sorts by the column, or reverses the order if the table is sorted by it."""
    is_sorted = name is view.column
    arrow = (" ▼" if view.is_descending else " ▲") if is_sorted else ""
    after = TableView(column=name, is_descending=is_sorted and not view.is_descending)
    order = ("descending" if view.is_descending else "ascending") if is_sorted else "none"
    return html.Th(_button(column.title + arrow, after, kind="sort"), scope="col", **{"aria-sort": order})


def _row(found: SpanColumns, row: int, facts: RunFacts, state: ViewState) -> Component:
    cells: list[Component | str] = [column.text(found, row, facts) for column in COLUMNS.values()]
    key = SpanKey(int(found.rank[row]), int(found.seq[row]))
    if found.stage[row] != Stage.STEP:
        at = [*COLUMNS].index(SpanColumn.STAGE)
        cells[at] = dcc.Link(cells[at], href=replace(state, span=key).search())
    return html.Tr([html.Td(cell) for cell in cells], className="suspect" if key == state.span else "")


def _pages(view: TableView, page: int, num_pages: int, num_rows: int) -> Component:
    first, last = (page - 1) * ROWS + 1, min(page * ROWS, num_rows)
    links = {"First": 1, "Previous": page - 1, "Next": page + 1, "Last": num_pages}
    buttons = [
        _button(text, replace(view, page=to)) for text, to in links.items() if 1 <= to <= num_pages and to != page
    ]
    return html.Div([html.Span(f"Rows {first:,} to {last:,} of {num_rows:,}"), *buttons], className="links pages")


def _button(text: str, view: TableView | None, *, kind: str = "button small") -> Component:
    """A button that changes the fields of the table in the address (``assets/page.js``)."""
    fields = urlencode(
        {"table": view.text if view else "", "table-page": "" if not view or view.page == 1 else view.page}
    )
    return html.Button(text, type="button", className=kind, **{"data-fields": fields})
