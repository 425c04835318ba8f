"""The counters of the steps shown, as a table, because screen readers cannot read the picture."""

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from ui.dashboard.data import Reads
from ui.dashboard.pages.panels import notice
from ui.dashboard.pages.timeline.counters import CounterCurves, counter_curves
from ui.dashboard.pages.timeline.selection import selection, spans
from ui.dashboard.timeline_view import Counters
from ui.dashboard.view_state import ViewState


def draw_counters(state: ViewState, reads: Reads) -> Component | None:
    """Mean, lowest and highest value of each counter during the steps shown. None if counters are hidden."""
    if state.timeline.counters is Counters.NONE:
        return None
    shown = selection(state, reads)
    counters, loaded = counter_curves(shown, state.timeline.counters, reads), spans(shown, reads)
    if not counters.curves or not len(loaded):
        text = "The agents of these hosts stored no such sample at the time of these steps."
        return notice("No samples", text)
    first_ns, last_ns = int(loaded.start_ns.min()), int(loaded.end_ns.max())
    units = (f"{track.title}, {track.unit}".removesuffix(", ") for track in counters.tracks)
    head = html.Tr([html.Th(name, scope="col") for name in ("rank", *units)])
    rows = [_row(rank, counters, first_ns, last_ns) for rank in shown.rows.ranks]
    table = html.Table([html.Thead(head), html.Tbody(rows)], className="shares counter-table")
    scroll = html.Div(table, className="hosts-table", tabIndex="0", role="region", **{"aria-label": "counters by rank"})
    note = "Mean over the time of these steps, with the lowest and the highest value. Samples are some seconds apart."
    title = html.H2("Counters", className="panel-title")
    return html.Section([title, scroll, dmc.Text(note, size="xs", c="dimmed")], className="panel")


def _row(rank: int, counters: CounterCurves, first_ns: int, last_ns: int) -> Component:
    cells = [_cell(rank, track, counters, first_ns, last_ns) for track in range(len(counters.tracks))]
    return html.Tr([html.Td(cell) for cell in (str(rank), *cells)])


def _cell(rank: int, track: int, counters: CounterCurves, first_ns: int, last_ns: int) -> str:
    """The text of a cell: ``1,410``, or ``1,410 (1,200 to 1,980)``. With several devices: ``eth0 12.0; eth1 9.5``."""
    curves = [curve for curve in counters.curves if curve.track == track and rank in curve.ranks]
    texts = []
    for curve in curves:
        low, mean, high = (
            f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in curve.during(first_ns, last_ns)
        )
        text = mean if low == high else f"{mean} ({low} to {high})"
        texts.append(f"{curve.device} {text}" if len(curves) > 1 else text)
    return "; ".join(texts) or "—"
