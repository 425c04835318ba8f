"""Curves with events: positions, number of markers, and hostile names."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go

from diagnose.findings import Severity
from tests.each_case import each_case
from ui.dashboard.chart_view import Axis, Scale
from ui.dashboard.events import EventKind, RunEvent
from ui.dashboard.figures.markers import MAX_MARKERS, OTHER, SEVERITY_MARKS, combine, hover_text
from ui.dashboard.figures.series import FAINT_CURVE, MAX_POINTS, Curve, curve_figure
from ui.dashboard.figures.x_axis import XAxis
from ui.dashboard.records import Series
from ui.dashboard.wording import local_ms

BEGIN_NS, STEP_NS = 1_790_000_000_000_000_000, 10**9
EVENT = RunEvent(
    kind=EventKind.MARK, name="gc", text="generation 2", run_id="r", attempt=0, step=0, at_ns=BEGIN_NS, rank=3
)


def series_of(value: Sequence[float], first: int = 0, pause_s: int = 0) -> Series:
    """One value per second, with a pause in the middle."""
    step = np.arange(first, first + len(value))
    at_ns = BEGIN_NS + (step - first) * STEP_NS
    at_ns[len(value) // 2 :] += pause_s * STEP_NS
    return Series(metric="loss", attempt=np.zeros_like(step), step=step, at_ns=at_ns, value=np.array(value, float))


def drawn(
    value: Sequence[float], events: Sequence[RunEvent] = (), *, first: int = 0, scale: Scale = Scale.LINEAR
) -> go.Figure:
    curve = Curve(name="loss", unit="", series=series_of(value, first), scale=scale)
    return curve_figure(curve, XAxis(axis=Axis.STEP, first=first, last=first + len(value) - 1), events, keep="k")


def markers_of(figure: go.Figure) -> go.Scatter:
    return next(trace for trace in figure.data if trace.yaxis == "y2")


def test_nan_or_infinite_loss_is_marked_at_its_first_step() -> None:
    crosses = drawn([2.0, 1.5, np.nan, np.nan, 1.2, np.inf], first=10).data[1]
    assert (crosses.x.tolist(), crosses.y.tolist()) == ([12, 15], [1.5, 1.2])
    assert list(crosses.customdata) == [["nan", 12], ["inf", 15]]
    assert len(drawn([1.0] * 6).data) == 2
    assert drawn([np.nan] * 6, first=10).data[1].x.tolist() == [10]


def test_close_events_share_one_marker_with_their_number_and_the_worst_colour() -> None:
    finding = replace(EVENT, kind=EventKind.FINDING, severity=Severity.WARNING, step=502, rank=5)
    events = [replace(EVENT, step=500), finding, replace(finding, severity=Severity.INFO, step=503), EVENT]
    trace = markers_of(drawn([1.0] * 1000, events))
    assert list(trace.x) == [0, 500]
    assert list(trace.text) == ["", "3"]
    assert list(trace.marker.color) == [OTHER, SEVERITY_MARKS[Severity.WARNING]]
    assert list(trace.customdata) == [EVENT.key, finding.key]
    assert trace.hovertext[1].startswith("▼ <b>gc (warning)</b> step 502")


@each_case("num_events", [1, 30, 5000])
def test_number_of_markers_stays_within_the_limit(num_events: int) -> None:
    places = [(float(place), replace(EVENT, step=place)) for place in np.linspace(0, 9999, num_events).astype(int)]
    markers = combine(places, 0, 9999)
    assert len(markers) <= MAX_MARKERS
    assert sum(len(marker.events) for marker in markers) == num_events
    assert np.diff([marker.at for marker in markers]).min(initial=9999) >= 9999 / MAX_MARKERS
    assert combine(places, 10_000, 10_001) == []
    assert len(combine([(7.0, EVENT)] * 9, 7, 7)) == 1, "a run of one step"


def test_finding_that_began_earlier_is_marked_at_the_first_shown_step() -> None:
    lasts = replace(EVENT, kind=EventKind.FINDING, severity=Severity.INFO, step=40, last_step=520)
    trace = markers_of(drawn([1.0] * 100, [lasts, replace(lasts, last_step=499), replace(EVENT, step=40)], first=500))
    assert (list(trace.x), list(trace.text)) == ([500], [""])
    assert "step 40," in trace.hovertext[0]


def test_hover_text_of_events_contains_no_markup_and_has_a_maximum_length() -> None:
    hostile = replace(EVENT, name="<img src=x>" * 99, text="<a href='x'>evil</a> " * 500)
    text = hover_text(combine([(0.0, replace(hostile, step=step)) for step in range(40)], 0, 9)[0])
    assert "<img" not in text
    assert "<a" not in text
    assert "and 35 more" in text
    assert len(text) < 2500


def test_wall_clock_curve_is_interrupted_at_a_gap_and_the_gap_is_shaded() -> None:
    series = series_of([1.0, 2.0, 3.0, 4.0], pause_s=60)
    gap = int(series.at_ns[1]) + STEP_NS, int(series.at_ns[2])
    x_axis = XAxis(axis=Axis.TIME, first=BEGIN_NS, last=int(series.at_ns[3]), gaps_ns=[gap], zone="UTC")
    curve = Curve(name="loss", unit="", series=series)
    figure = curve_figure(curve, x_axis, [replace(EVENT, at_ns=BEGIN_NS + 5 * STEP_NS)], keep="k")
    begin_ms = local_ms(BEGIN_NS)
    assert [str(value) for value in figure.data[0].y] == ["1.0", "2.0", "nan", "3.0", "4.0"]
    assert figure.data[0].x.tolist() == [begin_ms + ms for ms in (0, 1000, 1000, 62_000, 63_000)]
    shades = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert [(shape.x0 - begin_ms, shape.x1 - begin_ms) for shape in shades] == [(2000, 62_000)]
    assert list(markers_of(figure).x) == [begin_ms + 5000]
    assert figure.layout.xaxis.title.text == "wall clock, UTC"


def test_raw_curve_is_faint_beside_its_median_and_a_long_curve_is_thinned() -> None:
    raw = series_of((2 + np.sin(np.arange(20_000))).tolist())
    curve = Curve(name="loss", unit="", series=raw, smooth=raw, scale=Scale.LOG)
    figure = curve_figure(curve, XAxis(axis=Axis.STEP, first=0, last=19_999), keep="k")
    assert [trace.opacity for trace in figure.data[:2]] == [FAINT_CURVE, 1]
    assert all(len(trace.x) <= MAX_POINTS for trace in figure.data)
    assert figure.layout.yaxis.type == "log"
    assert drawn([1.0, 2.0]).layout.yaxis.rangemode == "tozero"
