"""The table of `rankscope doctor --run` on the page: of each host offset, bound, drift, and what they rest on."""

from collections.abc import Iterable
from dataclasses import replace

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from diagnose.model.window_clocks import WindowClocks
from telemetry.clocks.align_evidence import DISPUTED, ENDS, ORDER, PINGS, REFERENCE, UNALIGNED, HostClock
from ui.dashboard.pages.panels import heading
from ui.dashboard.view_state import View, ViewState
from ui.dashboard.wording import count, duration, long_duration

MAX_HOSTS = 50
COLUMNS = ("Host", "Offset", "Within", "Drift", "Events", "Lasts", "By", "")
METHODS = {
    REFERENCE: "the reference",
    ENDS: "ends of collectives",
    ORDER: "order of collectives and transfers",
    PINGS: "pings to the collector",
    DISPUTED: "disputed",
    UNALIGNED: "not aligned",
}


def by_trouble(clocks: Iterable[HostClock]) -> list[HostClock]:
    """The refused first, then the disputed, then the widest bounds; the reference last."""
    return sorted(clocks, key=lambda one: (one.aligned, one.method != DISPUTED, -one.bound_ns, one.host, one.first_ns))


def clock_table(now: WindowClocks, chosen: str, state: ViewState) -> Component:
    """The least certain first, the chosen one wherever it stands, and how many more there are."""
    rows = by_trouble(now.clocks)
    shown = rows[:MAX_HOSTS] + [one for one in rows[MAX_HOSTS:] if one.host == chosen]
    title = f"Clocks over steps {now.first_step} to {now.last_step}, against {now.clocks[0].reference}"
    if len(rows) > len(shown):
        title += f"; {count(len(rows) - len(shown), 'more row')}, none less sure, not listed: choose by name below"
    head = dmc.TableThead(dmc.TableTr([dmc.TableTh(name) for name in COLUMNS]))
    body = dmc.TableTbody([_row(one, chosen, state) for one in shown])
    table = dmc.Table([head, body], className="small-table", stickyHeader=True)
    scroll = html.Div(table, className="hosts-table", tabIndex="0", role="region", **{"aria-label": "table of clocks"})
    return html.Section([heading(title), scroll], className="panel")


def _row(one: HostClock, chosen: str, state: ViewState) -> Component:
    here = one.host == chosen
    address = replace(state, view=View.CLOCK, host=one.host).search()
    cells = (
        dcc.Link(one.host, href=address, className="run-link"),
        *_numbers(one),
        METHODS.get(one.method, one.method),
        one.reason,
    )
    current = {"aria-current": "true"} if here else {}
    return dmc.TableTr([dmc.TableTd(cell) for cell in cells], className="chosen" if here else "", **current)


def _numbers(one: HostClock) -> tuple[str, ...]:
    if not one.aligned:
        return "", "", "", "", ""
    return (
        f"{one.offset_ns / 1e6:+,.3f} ms",
        f"±{duration(one.bound_ns)}",
        f"{one.drift_ppm:+.2f} ppm",
        f"{one.num_events:,}",
        long_duration((one.last_ns - one.first_ns) / 1e9),
    )
