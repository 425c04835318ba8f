"""The curves of the overview: step time, the metrics of the trainer, and the metrics of the user's code."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dash_mantine_components as dmc
import numpy as np
import plotly.graph_objects as go
from dash import html
from dash.development.base_component import Component

from diagnose.run_figures import MFU
from ui.dashboard.chart_view import MAX_METRICS, OFF, SMOOTHINGS, Axis, ChartRange, Scale
from ui.dashboard.data import Reads
from ui.dashboard.data.core import METRICS
from ui.dashboard.data.curves import (
    Shown,
    chosen_ends,
    metric_series,
    own_metrics,
    shown_of,
    smooth_series,
    smooth_steps,
    steps_between,
)
from ui.dashboard.data.run_events import run_events
from ui.dashboard.data.run_rows import TOKENS
from ui.dashboard.figures.series import HEIGHT_PX, TITLE_PX, Curve, curve_figure
from ui.dashboard.figures.x_axis import XAxis
from ui.dashboard.pages.controls import after_brush, bar, switch
from ui.dashboard.pages.event_views import after_event, event_legend
from ui.dashboard.pages.interface import Chart, control_id, region_id
from ui.dashboard.pages.panels import chart_panel, heading, loading
from ui.dashboard.records import Series
from ui.dashboard.view_state import ViewState
from ui.dashboard.wording import from_local_ms, time_zone


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """How a metric of the trainer is drawn."""

    metric: str
    title: str
    name: str
    unit: str = ""
    number: str = ".3f"
    tick: str = "~g"
    factor: float = 1.0
    from_zero: bool = True
    can_be_log: bool = False


STEP_TIME = Quantity(metric="", title="Step time", name="step time", unit="s")
QUANTITIES = {
    "step-time": STEP_TIME,
    "loss": Quantity(metric="loss", title="Loss", name="loss", from_zero=False, can_be_log=True),
    "mfu": Quantity(metric=MFU, title="MFU", name="MFU", unit="%", number=".2f", factor=100.0),
    "tokens": Quantity(metric=TOKENS, title="Tokens/s", name="tokens/s", number=",.0f", tick="~s"),
}
"""Name -> quantity of each chart, in the order of the page."""
OWN = [f"own-{place}" for place in range(MAX_METRICS)]
"""Names of the charts of the user's own metrics."""
AXES = {Axis.STEP: "Step", Axis.TIME: "Wall clock"}
RANGES = {
    ChartRange.ALL: "All",
    ChartRange.STEPS_1000: "Last 1,000 steps",
    ChartRange.STEPS_100: "Last 100",
    ChartRange.DAY: "Last day",
    ChartRange.HOUR: "Last hour",
}
SCALES = {Scale.LINEAR: "Linear", Scale.LOG: "Log"}


def own_charts(state: ViewState, reads: Reads) -> list[str]:
    """The names of the charts: one for each metric of the user's code. Charts of metrics that are not chosen are
    hidden."""
    names, _ = own_metrics(state, reads)
    return OWN[: len(names)]


def curves_skeleton(own_names: Sequence[str]) -> Component:
    named = [
        chart_panel(name, heading(quantity.title), label=f"{quantity.title} and events", height_px=HEIGHT_PX)
        for name, quantity in QUANTITIES.items()
    ]
    own = [
        chart_panel(name, html.Span(), label="a metric of the user's code and events", height_px=HEIGHT_PX + TITLE_PX)
        for name in own_names
    ]
    controls = html.Section(html.Div(loading(60), id=region_id("curve-controls")), className="panel controls")
    return html.Div([controls, html.Div([*named, *own], className="curves linked")], className="curves-part")


def curve_values(state: ViewState, reads: Reads) -> dict[str, object]:
    """The values of the controls."""
    view = state.charts
    texts = {"axis": view.axis, "range": view.range, "smooth": view.smooth or OFF, "scale": view.scale}
    values: dict[str, object] = {f"charts-{name}": str(value) for name, value in texts.items()}
    return values | {"charts-metrics": own_metrics(state, reads)[1]}


def draw_curve_controls(state: ViewState, reads: Reads) -> Component:
    values, (names, _) = curve_values(state, reads), own_metrics(state, reads)
    smoothings = {OFF: "Off"} | {str(width): f"Median of {width} steps" for width in SMOOTHINGS}
    own = [_own_metrics(names, values["charts-metrics"])] if names else []
    return html.Div(
        [
            bar(
                switch("Axis", "charts-axis", values["charts-axis"], _texts(AXES)),
                switch("Range", "charts-range", values["charts-range"], _texts(RANGES)),
                switch("Scale of loss and own metrics", "charts-scale", values["charts-scale"], _texts(SCALES)),
                _select("Smoothing", "charts-smooth", values["charts-smooth"], smoothings),
            ),
            *own,
            event_legend(),
        ]
    )


def _texts(choices: Mapping[Any, str]) -> dict[str, str]:
    return {str(value): text for value, text in choices.items()}


def _select(label: str, name: str, value: object, choices: Mapping[str, str]) -> Component:
    data = [{"value": value, "label": text} for value, text in choices.items()]
    return dmc.Select(label=label, id=control_id(name), value=value, data=data, w=190, allowDeselect=False)


def _own_metrics(names: list[str], chosen: object) -> Component:
    return dmc.MultiSelect(
        label=f"Own metrics (up to {MAX_METRICS})",
        id=control_id("charts-metrics"),
        value=chosen,
        data=names,
        maxValues=MAX_METRICS,
        searchable=True,
        limit=100,
        mt="sm",
    )


def draw_curve(name: str, state: ViewState, reads: Reads) -> go.Figure | None:
    """The step time or a metric of the trainer. None without samples of the metric."""
    quantity, shown = QUANTITIES[name], shown_of(state, reads)
    if quantity is STEP_TIME:
        smooth = smooth_steps(shown, reads) if state.charts.smooth else None
        return _figure(quantity, shown.steps, smooth, shown, state, reads)
    series = metric_series(shown, METRICS, reads).get(quantity.metric)
    if series is None:
        return None
    smooth = smooth_series(shown, METRICS, reads).get(quantity.metric) if state.charts.smooth else None
    return _figure(quantity, series, smooth, shown, state, reads)


def draw_own_curve(name: str, state: ViewState, reads: Reads) -> go.Figure | None:
    """A metric of the user's code. None if the run has fewer metrics."""
    _, metrics = own_metrics(state, reads)
    place = OWN.index(name)
    if place >= len(metrics):
        return None
    shown, metric = shown_of(state, reads), metrics[place]
    series = metric_series(shown, metrics, reads).get(metric)
    if series is None:
        return None
    smooth = smooth_series(shown, metrics, reads).get(metric) if state.charts.smooth else None
    quantity = Quantity(metric=metric, title=metric, name="value", number=".4~g", from_zero=False, can_be_log=True)
    return _figure(quantity, series, smooth, shown, state, reads)


def _figure(
    quantity: Quantity, series: Series, smooth: Series | None, shown: Shown, state: ViewState, reads: Reads
) -> go.Figure:
    run, view = shown.facts.summary, shown.view
    finite = series.value[np.isfinite(series.value)]
    is_log = view.scale is Scale.LOG and quantity.can_be_log and len(finite) > 0 and bool((finite > 0).all())
    curve = Curve(
        name=quantity.name,
        unit=quantity.unit,
        series=_times(series, quantity.factor),
        smooth=None if smooth is None else _times(smooth, quantity.factor),
        number=quantity.number,
        tick=quantity.tick,
        from_zero=quantity.from_zero,
        scale=Scale.LOG if is_log else Scale.LINEAR,
        title=quantity.title if quantity.name == "value" else "",
    )
    keep = f"{run.run_id}/{run.attempt}/{view.axis}/{view.range}/{curve.scale}/{curve.title}"
    chosen = chosen_ends(state.steps, shown)
    return curve_figure(curve, _x_axis(shown), run_events(shown, reads), keep=keep, chosen=chosen)


def _times(series: Series, factor: float) -> Series:
    return series if factor == 1.0 else replace(series, value=series.value * factor)


def _x_axis(shown: Shown) -> XAxis:
    first, last = shown.ends
    if shown.view.axis is Axis.STEP:
        return XAxis(axis=Axis.STEP, first=first, last=last)
    return XAxis(axis=Axis.TIME, first=first, last=last, gaps_ns=shown.gaps_ns, zone=time_zone(last))


def after_drag(state: ViewState, reads: Reads, first: object, last: object) -> ViewState:
    """The view after a drag along the x axis of a curve: the steps between its ends."""
    if state.charts.axis is Axis.STEP:
        return after_brush(state, first, last)
    with suppress(ValueError, TypeError, OverflowError, OSError):
        begin, end = sorted(from_local_ms(float(each)) for each in (first, last))  # type: ignore[arg-type]
        return steps_between(state, reads, begin, end)
    return state


def _after_click(state: ViewState, reads: Reads, point: Mapping[str, Any]) -> ViewState:
    return after_event(state, shown_of(state, reads), reads, point)


_DRAWS = {name: partial(draw_curve, name) for name in QUANTITIES} | {
    name: partial(draw_own_curve, name) for name in OWN
}
CHARTS = {name: Chart(draw=draw, after_drag=after_drag, after_click=_after_click) for name, draw in _DRAWS.items()}
