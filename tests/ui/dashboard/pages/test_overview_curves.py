"""Curves of the overview over real stores: what they show, what is marked, and where clicks and drags lead."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest

from diagnose.alerts.onset import Onset
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Reader, StoreReader
from telemetry.topology import Topology
from tests.benchmarks.many_runs import MadeRuns
from tests.memory_store import memory_store
from tests.telemetry.made_rows import insert, made
from tests.ui.counting import Counting
from tests.ui.driven_run import LOST_STEPS, store_driven_run
from tests.ui.made_fleet import tell_of_hosts
from tests.ui.reported_alerts import made_alert, tell_log
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.address import parse_search
from ui.dashboard.data import Reads
from ui.dashboard.data.curves import moving_median, shown_of
from ui.dashboard.data.run_events import run_events
from ui.dashboard.events import EventKind, RunEvent
from ui.dashboard.pages import PAGES
from ui.dashboard.records import Series
from ui.dashboard.serving.drawing import draw_page
from ui.dashboard.view_state import Group, StepRange, View, ViewState
from ui.dashboard.wording import from_local_ms, local_ms

CHARTS = PAGES[View.OVERVIEW].charts
ONSET, NUM_STEPS = 40, 80
S = 1_000_000_000
HOSTILE = "<b>'; DROP &"


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedStore]:
    with memory_store() as store:
        late = SyntheticRun(run_id="late", slow={})
        late.introduce(store)
        late.advance(store, ONSET)
        late.mark(store, 3, "restart", "node lost")
        late.slow = {5: 1.4}
        late.advance(store, NUM_STEPS - ONSET)
        late.beat(store, at_ns=late.now_ns, ended=True)
        tell_of_hosts(store, late)
        rows = [
            {"rank": 7, "seq": 10**6 + number, "step": step, "at_ns": late.started_ns, "metric": name, "value": value}
            for number, (step, name, value) in enumerate(
                [(step, name, step + 1.0) for step in range(0, NUM_STEPS, 10) for name in ("grad-norm", HOSTILE)]
                + [(step, f"m{number}", -1.0) for step in (3, 4) for number in range(9)]
            )
        ]
        insert(store, "samples", made("samples", rows), run_id="late")
        store_driven_run(store)
        MadeRuns(names=("long",), topology=Topology(), num_steps=20_000).store(store)
        yield store


@pytest.fixture(scope="module")
def reads(store: EmbeddedStore) -> Reads:
    return reads_of(StoreReader(store))


def reads_of(reader: Reader) -> Reads:
    """Reads with a fixed clock, so that no list is queried again after a second."""
    now_s = time.time()
    return Reads(reader, wall_s=lambda: now_s)


def view_of(search: str) -> ViewState:
    state, notes = parse_search(f"?view=overview&{search}")
    assert notes == ()
    return state


def drawn(name: str, search: str, reads: Reads) -> go.Figure:
    figure = CHARTS[name].draw(view_of(search), reads)
    assert figure is not None
    return figure


def events_of(search: str, reads: Reads) -> dict[EventKind, list[RunEvent]]:
    found: dict[EventKind, list[RunEvent]] = {}
    for event in run_events(shown_of(view_of(search), reads), reads):
        found.setdefault(event.kind, []).append(event)
    return found


def click(search: str, key: str, reads: Reads) -> ViewState:
    clicked = CHARTS["loss"].after_click
    assert clicked is not None
    return clicked(view_of(search), reads, {"customdata": key, "x": 3})


def drag(search: str, first: object, last: object, reads: Reads) -> ViewState:
    dragged = CHARTS["loss"].after_drag
    assert dragged is not None
    return dragged(view_of(search), reads, first, last)


def test_findings_marks_and_link_losses_are_events_at_their_steps(reads: Reads) -> None:
    found = events_of("run=late", reads)
    slow = next(event for event in found[EventKind.FINDING] if event.stage)
    assert (slow.step, slow.rank, slow.host) == (ONSET, 5, "gpu-03")
    assert [(event.name, event.step, event.rank) for event in found[EventKind.MARK]] == [("restart", ONSET - 1, 3)]
    assert [(event.host, event.rank) for event in found[EventKind.FLAP]] == [("gpu-03", 4)]
    assert EventKind.RESTART not in found


def test_click_on_an_event_opens_its_step_with_rank_stage_and_host_and_keeps_other_choices(reads: Reads) -> None:
    finding = next(event for event in events_of("run=late", reads)[EventKind.FINDING] if event.rank == 5)
    there = click("run=late&pins=1.2&group=dp&axis=time", finding.key, reads)
    assert (there.view, there.step, there.rank, there.host) == (View.TIMELINE, ONSET, 5, "gpu-03")
    assert there.stage in (Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE)
    assert (there.steps, there.pins, there.group) == (StepRange.around(ONSET), (1, 2), Group.DP)
    assert there.charts == view_of("axis=time").charts
    kept = click("run=late&steps=30-50", finding.key, reads)
    assert kept.steps == StepRange(30, 50), "they contain the step"
    here = view_of("run=late")
    assert click("run=late", "nothing", reads) == here, "a click on the curve"


def test_restarts_are_events_and_lead_to_their_attempt(reads: Reads) -> None:
    by_step = events_of("run=driven&attempt=0", reads)[EventKind.RESTART]
    assert {event.attempt for event in by_step} == {0}
    fault = next(event for event in by_step if event.name == "rank-failed")
    assert (fault.step, fault.text) == (59, "rank-failed on node-b: rank 3 was killed by SIGKILL on node-b")
    everywhere = events_of("run=driven&axis=time", reads)[EventKind.RESTART]
    assert {event.attempt for event in everywhere} == {0, 1}
    there = click("run=driven&axis=time&steps=58-70", fault.key, reads)
    assert (there.attempt, there.step, there.view) == (0, 59, View.TIMELINE)


def test_a_finding_that_only_the_log_has_is_an_event_of_its_attempt(store: EmbeddedStore) -> None:
    onset = Onset(step=12, at_ns=0, is_exact=True)
    past = made_alert("late", began_ns=S, kind="slow-link", rank=2, summary="the link was slow", onset=onset)
    known = made_alert("late", began_ns=S, rank=5, summary="the report has it", onset=onset)
    tell_log(store, [past, known], at_ns=2 * S)
    found = events_of("run=late", reads_of(StoreReader(store)))[EventKind.FINDING]
    logged = [event for event in found if event.step == 12]
    assert [(event.text, event.rank, event.severity) for event in logged] == [("the link was slow", 2, "warning")]


def test_the_wall_clock_shows_all_attempts_with_the_gap_between_them(reads: Reads) -> None:
    by_step, on_clock = drawn("step-time", "run=driven", reads), drawn("step-time", "run=driven&axis=time", reads)
    assert len(by_step.data[0].x) == 40
    steps, value = on_clock.data[0].customdata[:, 1].tolist(), on_clock.data[0].y
    assert steps == [*range(60), 59, *range(60 - LOST_STEPS, 96)]
    assert np.flatnonzero(np.isnan(value)).tolist() == [60]
    shade = next(shape for shape in on_clock.layout.shapes if shape.type == "rect")
    assert (shape_s := (shade.x1 - shade.x0) / 1000) > 45, shape_s
    assert drawn("step-time", "run=driven&attempt=0&axis=time&range=100", reads).data[0].x.size == 60, "of attempt 0"
    loss = drawn("loss", "run=driven&axis=time", reads)
    assert loss.data[0].customdata[:, 0].tolist() == [0] * 61 + [1] * 40


def test_drag_on_the_wall_clock_selects_the_steps_of_one_attempt(reads: Reads) -> None:
    times = drawn("step-time", "run=driven&axis=time", reads).data[0].x
    chosen = drag("run=driven&axis=time&rank=2", times[70] - 1, times[75] + 1, reads)
    assert (chosen.steps, chosen.rank, chosen.attempt) == (StepRange(65, 70), 2, None)
    shaded = drawn("loss", f"run=driven&axis=time&steps={chosen.steps}", reads).layout.shapes
    assert any(shape.x0 == times[70] for shape in shaded if shape.type == "rect")
    earlier = drag("run=driven&axis=time&rank=2", times[20] - 1, times[10] - 1, reads)
    assert (earlier.attempt, earlier.steps, earlier.rank) == (0, StepRange(10, 19), None)
    here = view_of("run=driven&axis=time")
    for first, last in (
        (None, 3),
        ("a", "b"),
        (1e300, 1),
        (float("nan"), 2.0),
        (times[60] + 20_000, times[60] + 20_001),
    ):
        assert drag("run=driven&axis=time", first, last, reads) == here


def test_local_milliseconds_convert_back_to_nanoseconds_within_a_microsecond() -> None:
    for at_ns in (1_790_000_000_123_456_789, 1_650_000_000_000_000_000):
        assert abs(from_local_ms(local_ms(at_ns)) - at_ns) < 1000


@pytest.mark.parametrize(
    ("search", "first", "last"),
    [
        ("run=long&range=100", 19_900, 19_999),
        ("run=long&range=1000", 19_000, 19_999),
        ("run=long&range=1h", None, 19_999),
        ("run=long", 0, 19_999),
    ],
)
def test_a_range_shows_the_last_part_of_the_run_in_full_detail(
    reads: Reads, search: str, first: int | None, last: int
) -> None:
    facts = reads.facts(view_of("run=long"))
    if first is None:
        ends = facts.steps.start_ns + facts.steps.duration_ns.astype(np.int64)
        first = int(facts.steps.step[np.flatnonzero(ends > ends[-1] - 3600 * S)[0]])
    for axis in ("", "&axis=time"):
        shown = shown_of(view_of(search + axis), reads)
        assert (shown.steps.step[0], shown.steps.step[-1]) == (first, last)
        loss = drawn("loss", search + axis, reads).data[0]
        assert len(loss.x) == 100 or len(loss.x) > 400
        assert len(loss.x) <= 1505


def test_smoothing_draws_the_moving_median_over_the_faint_curve(reads: Reads) -> None:
    loss = reads.series(reads.facts(view_of("run=late")).summary)["loss"].value
    smooth = drawn("loss", "run=late&smooth=11", reads).data[1]
    assert smooth.y[40] == pytest.approx(np.median(loss[35:46]))
    assert smooth.y[0] == pytest.approx(np.median(loss[:6]))
    for name in ("loss", "step-time"):
        long = drawn(name, "run=long&smooth=201", reads).data
        raw, median = (trace.y[100:-100] for trace in long[:2])
        assert np.ptp(median) < np.ptp(raw)
        assert len(long[1].x) <= 600


def test_moving_median_stays_within_an_attempt_and_skips_nan() -> None:
    attempt, value = np.array([0, 0, 0, 1, 1, 1]), np.array([1.0, np.nan, 3.0, 50.0, 60.0, 70.0])
    series = Series(metric="m", attempt=attempt, step=np.arange(6), at_ns=np.arange(6), value=value)
    smooth = moving_median(series, 11, 1)
    assert (smooth.attempt.tolist(), smooth.value.tolist()) == ([0, 0, 1, 1, 1], [2.0, 2.0, 60.0, 60.0, 60.0])
    assert len(moving_median(replace(series, value=np.full(6, np.nan)), 11, 1).step) == 0


def test_every_user_metric_can_be_a_chart_and_its_name_is_escaped(reads: Reads) -> None:
    titles = [figure.layout.title.text for name in CHARTS if (figure := CHARTS[name].draw(view_of("run=late"), reads))]
    assert titles[4:] == [
        "<b>&lt;b&gt;'; DROP &amp;</b>",
        "<b>grad-norm</b>",
        *(f"<b>m{each}</b>" for each in range(6)),
    ]
    own = drawn("own-1", "run=late", reads)
    assert (own.data[0].x.tolist(), own.data[0].y[:2].tolist()) == ([*range(0, NUM_STEPS, 10)], [1.0, 11.0])
    chosen = "run=late&metrics=m8,nothing,"
    assert drawn("own-0", chosen, reads).layout.title.text == "<b>m8</b>"
    assert CHARTS["own-1"].draw(view_of(chosen), reads) is None
    assert CHARTS["own-0"].draw(view_of("run=late&metrics=,"), reads) is None
    values = PAGES[View.OVERVIEW].control_values(view_of(chosen), reads)
    assert values["charts-metrics"] == ["m8"]


def test_overview_has_only_the_metric_charts_that_its_run_can_have(reads: Reads) -> None:
    for search, number in (("run=late", 8), ("run=late&metrics=m8,", 8), ("run=driven", 0)):
        drawn_page = draw_page(view_of(search), reads)
        assert json.dumps(drawn_page.make()).count('{"chart": "own-') == 2 * number, "each chart has a panel"
        assert drawn_page.key.endswith("/8-charts/page" if number else "/None/page")


def test_log_scale_applies_only_to_positive_values_of_loss_and_user_metrics(reads: Reads) -> None:
    kinds = {name: drawn(name, "run=late&scale=log", reads).layout.yaxis.type for name in [*CHARTS][:7]}
    assert kinds == dict.fromkeys(kinds, "linear") | {"loss": "log", "own-0": "log", "own-1": "log"}


def test_all_charts_of_a_page_have_the_same_x_axis_and_units(reads: Reads) -> None:
    figures = [drawn(name, "run=late", reads) for name in [*CHARTS][:8]]
    assert len({str(figure.layout.xaxis) for figure in figures}) == 1
    assert [figure.layout.yaxis.title.text for figure in figures[:5]] == [
        "step time, s",
        "loss",
        "MFU, %",
        "tokens/s",
        "value",
    ]


def test_charts_share_their_queries_and_repeat_none(store: EmbeddedStore) -> None:
    """Counts the queries of the charts in addition to those of the other parts of the page."""
    counting = Counting(StoreReader(store))
    reads = reads_of(counting)
    for name in PAGES[View.OVERVIEW].regions:
        PAGES[View.OVERVIEW].regions[name].draw(view_of("run=driven"), reads)
    views = {
        "run=driven": {"MarkColumns": 1, "Findings": 1},
        "run=driven&steps=60-70&scale=log": {},
        "run=driven&smooth=11": {},
        "run=driven&axis=time": {"MarkColumns": 1, "RunStepTimes": 1, "SampleCurves": 1},
        "run=driven&axis=time&smooth=51": {"SampleMedians": 1},
    }
    for search, expected in views.items():
        before = counting.asked.copy()
        for _ in range(2):
            for name in CHARTS:
                CHARTS[name].draw(view_of(search), reads)
        assert counting.asked - before == expected, search
