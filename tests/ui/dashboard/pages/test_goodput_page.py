"""The goodput page, the panel of decisions, and the same figure in the list of runs and the metric."""

from collections.abc import Iterator

import pytest

from diagnose.goodput.stored import load_ledger
from diagnose.metrics.reading import read_runs
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.each_case import each_case
from tests.memory_store import memory_store
from tests.ui.driven_run import NAME, store_driven_run
from tests.ui.synthetic_run import SyntheticRun
from tests.ui.words_of_pages import said
from ui.dashboard.data import Reads
from ui.dashboard.pages import PAGES
from ui.dashboard.pages.overview.page import draw_decisions
from ui.dashboard.pages.runs.listing import run_list
from ui.dashboard.serving.drawing import draw_chart
from ui.dashboard.view_state import View, ViewState

PLAIN = "plain"


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedStore]:
    with memory_store() as store:
        store_driven_run(store)
        run = SyntheticRun(run_id=PLAIN, slow={})
        run.introduce(store)
        run.advance(store, 20)
        run.beat(store, at_ns=run.now_ns, ended=True)
        yield store


@pytest.fixture(scope="module")
def reads(store: EmbeddedStore) -> Reads:
    return Reads(StoreReader(store))


def of(region: str, reads: Reads, run: str = NAME) -> str:
    return said(region, reads, view=View.GOODPUT, run=run)


def test_the_page_shows_goodput_classes_and_the_incident(reads: Reads) -> None:
    ledger = load_ledger(reads.reader_of(reads.newest(ViewState(run=NAME))), NAME)
    assert f"Goodput {ledger.goodput:.1%} useful time / wall time" in of("goodput-numbers", reads)
    assert "waiting-for-nodes 40.00 s" in of("goodput-classes", reads)
    incidents = of("goodput-incidents", reads)
    assert "attempt 0 rank-failed on node-b" in incidents
    assert "rank 3 was killed by SIGKILL" in incidents


@each_case("view", [View.OVERVIEW, View.GOODPUT, View.COMPARE])
def test_pages_with_events_above_their_charts_explain_the_symbols_and_colours(reads: Reads, view: View) -> None:
    shown = said("curve-controls", reads, view=view, run=NAME) if view is View.OVERVIEW else str(PAGES[view].skeleton())
    assert "▼" in shown
    assert "Red: critical, orange: warning, blue: info" in shown


def test_the_chart_has_a_bar_for_each_class_that_took_time_and_a_line_for_each_attempt(reads: Reads) -> None:
    plotted = draw_chart("goodput-time", ViewState(view=View.GOODPUT, run=NAME), reads, None)
    assert plotted is not None
    *bars, _ = plotted.figure["data"]
    names = [each["name"] for each in bars]
    assert names == [
        "useful", "repeated", "outside-steps", "detecting", "checking", "restarting", "waiting-for-nodes",
    ]  # fmt: skip
    heights = [sum(each["y"][column] for each in bars) for column in range(240)]
    assert heights == pytest.approx([100] * 240, abs=0.01)
    assert [one["text"] for one in plotted.figure["layout"]["annotations"]] == ["attempt 0", "attempt 1"]


def test_restarts_are_events_of_the_chart_and_lead_to_their_attempt(reads: Reads) -> None:
    chart, state = PAGES[View.GOODPUT].charts["goodput-time"], ViewState(view=View.GOODPUT, run=NAME, pins=(3,))
    figure = chart.draw(state, reads)
    assert figure is not None
    assert chart.after_click is not None
    place, point = next(
        (at, {"customdata": key})
        for at, key, text in zip(figure.data[-1].x, figure.data[-1].customdata, figure.data[-1].hovertext, strict=True)
        if "rank 3 was killed by SIGKILL" in text
    )
    assert figure.layout.xaxis.range[0] < place < figure.layout.xaxis.range[1]
    there = chart.after_click(state, reads, point)
    assert (there.view, there.attempt, there.step) == (View.TIMELINE, 0, 59)
    assert chart.after_click(state, reads, {"customdata": "?", "x": 3}) == state


def test_a_run_without_faults_has_no_incident(reads: Reads) -> None:
    assert "No fault ended an attempt" in of("goodput-incidents", reads, PLAIN)


def test_the_overview_lists_the_decisions_of_the_driver_if_there_are_any(reads: Reads) -> None:
    text = said("decisions", reads, view=View.OVERVIEW, run=NAME)
    assert text.index(" done ") < text.index(" rank-failed node-b ") < text.index("attempt 0 on node-a, node-b")
    assert draw_decisions(ViewState(view=View.OVERVIEW, run=PLAIN), reads) is None


def test_list_of_runs_metric_and_ledger_show_the_same_goodput(store: EmbeddedStore, reads: Reads) -> None:
    reader = StoreReader(store)
    rows = {row.run_id: row for row in run_list(reads).rows}
    newest_ns = max(row.heard_ns for row in rows.values())
    found = {run.figures.run_id: run.figures.goodput for run in read_runs(reader, newest_ns).runs}
    for name in (NAME, PLAIN):
        goodput = load_ledger(reader, name).goodput
        assert rows[name].goodput == pytest.approx(goodput, rel=0.01)
        assert found[name] == pytest.approx(rows[name].goodput)
