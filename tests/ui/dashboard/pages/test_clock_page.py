"""The clock page: offsets between the clocks of hosts, unaligned hosts, and the reasons."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.topology import Topology
from tests.memory_store import memory_store
from tests.ui.made_fleet import SICK, SILENT, tell_of_clocks
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.data import Reads
from ui.dashboard.pages.clock.offset import clock_offset
from ui.dashboard.pages.clock.page import clock_history, draw_offset
from ui.dashboard.serving.drawing import draw_chart, draw_region
from ui.dashboard.view_state import View, ViewState
from ui.dashboard.wording import long_duration

SHOWN = ViewState(view=View.CLOCK, run="apart")


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedStore]:
    """Thirty steps of four hosts, in three windows."""
    with memory_store() as store:
        run = SyntheticRun(run_id="apart", slow={})
        run.introduce(store)
        run.advance(store, 30)
        tell_of_clocks(store, run, 30)
        yield store


@pytest.fixture(scope="module")
def reads(store: EmbeddedStore) -> Reads:
    return Reads(StoreReader(store))


def text_of(state: ViewState, reads: Reads, region: str) -> str:
    drawn = draw_region(region, state, reads, by_clock=False)
    assert drawn is not None
    return json.dumps(drawn.make(), ensure_ascii=False)


def test_unaligned_hosts_are_reported_with_the_reason(reads: Reads) -> None:
    said = text_of(SHOWN, reads, "clock-says")
    assert "1 of 4 hosts not aligned" in said
    assert f"not aligned: {SILENT}: no collective, transfer or ping shared" in said
    assert f"disputed: {SICK}: pings lie 2 ms off" in said


def test_offsets_of_the_other_hosts_are_given_apart_from_their_uncertainty(store: EmbeddedStore) -> None:
    run = SyntheticRun(run_id="known", slow={})
    run.introduce(store)
    run.advance(store, 30)
    tell_of_clocks(store, run, 30, hosts=("gpu-01", "gpu-02"))
    said = text_of(replace(SHOWN, run="known"), Reads(StoreReader(store)), "clock-says")
    assert "The offset of 1 host from gpu-01 is known to ±40 µs over steps 20 to 29" in said
    assert "largest offset: gpu-02, +12.200 ms." in said


def test_clock_table_shows_the_newest_window_with_the_least_certain_host_first(reads: Reads) -> None:
    said = text_of(SHOWN, reads, "clocks")
    order = [said.index(f'"{host}"') for host in (SILENT, SICK, "gpu-02", "gpu-01")]
    assert order == sorted(order)
    assert "+12.200 ms" in said
    assert "±40 µs" in said
    assert "+3.50 ppm" in said
    assert "steps 20 to 29, against gpu-01" in said


def test_duration_of_a_few_minutes_has_seconds() -> None:
    assert [long_duration(seconds) for seconds in (59, 87, 120, 601)] == ["59 s", "1 min 27 s", "2 min", "10 min"]


def test_offset_is_drawn_with_its_bound_and_unaligned_windows_are_shaded(reads: Reads) -> None:
    figure = draw_offset(replace(SHOWN, host="gpu-02"), reads)
    assert figure is not None
    (trace,) = figure.data
    assert list(trace.y) == [12.0, None, 12.2], "the line breaks where nothing is known"
    assert list(trace.error_y.array) == [0.04, 0.0, 0.04]
    (shade,) = figure.layout.shapes
    assert trace.x[0] < shade.x0 < shade.x1
    assert "The clock could not be aligned in 1 of 3 windows. This window is shaded." in text_of(
        replace(SHOWN, host="gpu-02"), reads, "clock-title"
    )


def test_single_window_is_drawn_over_its_steps(reads: Reads) -> None:
    facts = reads.facts(SHOWN)
    figure = clock_offset(clock_history(reads, facts, "gpu-02")[:1], facts.steps, keep="k")
    assert figure is not None
    first, last = figure.layout.xaxis.range
    assert first < figure.data[0].x[0] < last < figure.data[0].x[0] + 60_000


def test_clock_page_opens_on_the_least_certain_clock_that_can_be_drawn(reads: Reads) -> None:
    assert f"Offset of {SICK}" in text_of(SHOWN, reads, "clock-title")


def test_host_without_a_clock_bound_has_no_chart(reads: Reads) -> None:
    plotted = draw_chart("offset", replace(SHOWN, host=SILENT), reads, None)
    assert plotted is not None
    assert plotted.panel == "panel hidden"
    assert "The clock could not be aligned in 3 of 3 windows. These windows are shaded." in text_of(
        replace(SHOWN, host=SILENT), reads, "clock-title"
    )


def test_unknown_host_is_reported_and_the_table_is_still_shown(reads: Reads) -> None:
    state = replace(SHOWN, host="nobody's")
    assert "No rank ran on a host nobody's" in text_of(state, reads, "clock-title")
    assert "gpu-02" in text_of(state, reads, "clocks")
    assert "could not be drawn" not in text_of(state, reads, "clock-controls")


def test_run_on_one_host_needs_no_alignment(store: EmbeddedStore) -> None:
    run = SyntheticRun(run_id="alone", topology=Topology(dp=2))
    run.introduce(store)
    run.advance(store, 3)
    said = text_of(replace(SHOWN, run="alone"), Reads(StoreReader(store)), "clock-says")
    assert "no alignment is needed" in said


def test_page_estimates_the_clocks_of_a_run_without_stored_estimates(store: EmbeddedStore) -> None:
    run = SyntheticRun(run_id="unwatched", slow={})
    run.introduce(store)
    run.advance(store, 30)
    reads = Reads(StoreReader(store))
    state = replace(SHOWN, run="unwatched")
    said = text_of(state, reads, "clock-says")
    assert "could not be drawn" not in said
    (window,) = clock_history(reads, reads.facts(state), "gpu-02")
    assert window.clocks[0].host == "gpu-02"
