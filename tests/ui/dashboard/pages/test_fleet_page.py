"""The fleet page: samples of a host beside the steps of its ranks, and the host that is shown first."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest

from diagnose.model.fleet import HostEvent, HostSeries
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.topology import Topology
from tests.memory_store import memory_store
from tests.ui.counting import Counting
from tests.ui.made_fleet import BACK_NS, LOST_NS, SICK, SILENT, S, tell_of_hosts
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.data import Reads
from ui.dashboard.data.fleet import MAX_POINTS, HostScene, host_scene, troubles
from ui.dashboard.pages.fleet.chart import DASHES, curve_names, strokes
from ui.dashboard.pages.fleet.curves import HostCurve, curves_of
from ui.dashboard.pages.fleet.families import PANELS
from ui.dashboard.pages.fleet.page import draw_host, no_samples, selection
from ui.dashboard.serving.drawing import draw_chart, draw_region
from ui.dashboard.view_state import Family, StepRange, View, ViewState
from ui.dashboard.wording import local_ms

RUN = "fleet"
SHOWN = ViewState(view=View.FLEET, run=RUN, host=SICK, family=Family.NETWORK)


@pytest.fixture(scope="module")
def stored() -> Iterator[tuple[EmbeddedStore, SyntheticRun]]:
    """Forty steps of four hosts. One host has a NIC that flaps and a throttled GPU."""
    with memory_store() as store:
        run = SyntheticRun(run_id=RUN)
        run.introduce(store)
        run.advance(store, 40)
        run.mark(store, 4, "restart", "after a <i>loss</i>")
        run.beat(store, at_ns=run.now_ns, ended=True)
        tell_of_hosts(store, run)
        yield store, run


@pytest.fixture(scope="module")
def reads(stored: tuple[EmbeddedStore, SyntheticRun]) -> Reads:
    return Reads(StoreReader(stored[0]))


def text_of(state: ViewState, reads: Reads, region: str) -> str:
    drawn = draw_region(region, state, reads, by_clock=False)
    assert drawn is not None
    return json.dumps(drawn.make(), ensure_ascii=False)


def figure_of(state: ViewState, reads: Reads) -> go.Figure:
    figure = draw_host(state, reads)
    assert figure is not None
    return figure


def test_faults_of_each_host_are_counted_over_the_steps(reads: Reads) -> None:
    facts = reads.facts(SHOWN)
    found = troubles(reads, facts, StepRange(0, 39))
    assert set(found) == {"gpu-01", "gpu-02", SICK}
    sick, well = found[SICK], found["gpu-01"]
    assert (sick.events, sick.flaps, well.events, well.flaps) == (2, 1, 0, 0)
    assert sick.throttled == pytest.approx(13 * 0.8 / 22), (
        "of the time of the steps; two counters of one reason count once"
    )
    assert (sick.throttled_by, well.throttled) == ("heat", 0.0)
    assert (sick.cpu_pressure, well.cpu_pressure) == (pytest.approx(0.25), pytest.approx(0.01))


def test_host_panel_counts_the_same_fault_events_as_the_table(reads: Reads) -> None:
    num_events = troubles(reads, reads.facts(SHOWN), StepRange(0, 39))[SICK].events
    assert f"{num_events} fault events shown" in text_of(SHOWN, reads, "fleet-title")


def test_device_has_one_colour_in_all_panels_and_its_throttle_reasons_differ_by_dashes(reads: Reads) -> None:
    curves = figure_of(replace(SHOWN, family=Family.GPU), reads).data
    colours = {curve.name.split()[0]: set() for curve in curves if curve.name.startswith("gpu")}
    for curve in curves:
        if curve.name.startswith("gpu"):
            colours[curve.name.split()[0]].add(curve.line.color)
    assert [len(one) for one in colours.values()] == [1, 1]
    assert colours["gpu0"] != colours["gpu1"]
    held = [curve.line.dash for curve in curves if curve.name.startswith("gpu1 heat")]
    assert len(held) == len(set(held)) == 2
    assert len(DASHES) >= max(len(set(panel.metrics.values())) for panels in PANELS.values() for panel in panels)


def test_heading_of_a_panel_names_each_device_and_each_kind_of_curve_once() -> None:
    some = {"at_ns": np.zeros(1, np.int64), "value": np.zeros(1), "holds": True}
    pairs = [("gpu0", "power cap"), ("gpu1", "power cap"), ("gpu1", "heat (driver)")]
    curves = [HostCurve(device=device, kind=kind, **some) for device, kind in pairs]
    (drawn_as,) = strokes([curves])
    names = [re.sub("<.*?>", "", name) for name in curve_names(curves, drawn_as)]
    assert names == ["■ gpu0", "■ gpu1", "■ power cap", "╍ heat (driver)"]
    alone = [re.sub("<.*?>", "", name) for name in curve_names(curves[1:], drawn_as[1:])]
    assert alone == ["■ gpu1 power cap", "╍ gpu1 heat (driver)"]


def test_host_table_lists_suspect_hosts_first_and_then_hosts_with_most_faults(reads: Reads) -> None:
    said = text_of(SHOWN, reads, "hosts")
    hosts = [host for host in (SICK, "gpu-02", SILENT) if host in said]
    assert hosts == [SICK, "gpu-02", SILENT]
    assert said.index(f'"{SICK}"') < said.index('"gpu-01"') < said.index(f'"{SILENT}"')
    assert "25%" in said
    assert said.count("(heat)") == 1
    assert '"47% (heat)"' in said, "the share of the time of the worst GPU"
    assert f"host={SICK}" in said


def test_steps_and_samples_share_the_time_axis_of_the_host(
    reads: Reads, stored: tuple[EmbeddedStore, SyntheticRun]
) -> None:
    figure = figure_of(SHOWN, reads)
    names = [trace.name for trace in figure.data]
    assert names == ["rank 4", "rank 5", "eth0", "eth0"]
    assert {axis.matches for axis in figure.select_xaxes()} == {None, "x3"}
    assert all(axis.ticklabelstandoff > 0 for axis in figure.select_yaxes()), "0 is not beside a tick of the time axis"
    assert figure.layout.yaxis.nticks >= 5
    lost = next(shape for shape in figure.layout.shapes if shape.type == "rect")
    started_ns = stored[1].started_ns
    assert (lost.x0, lost.x1) == (local_ms(started_ns + LOST_NS), local_ms(started_ns + BACK_NS))
    down = [x for x, y in zip(figure.data[2].x, figure.data[2].y, strict=True) if y == 0]
    assert lost.x0 <= down[0] <= lost.x0 + 2_000
    received = figure.data[3]
    assert set(received.y.round().tolist()) == {125.0}, "megabytes a second"


def test_events_of_a_host_are_described_in_words_and_shown_as_plain_text(reads: Reads) -> None:
    words = [note.text for note in figure_of(SHOWN, reads).layout.annotations]
    assert "eth0 lost its link for 4.0 s" in words
    assert "gpu1 Xid 48" in words
    assert "restart (rank 4)" in words
    listed = text_of(SHOWN, reads, "happened")
    assert "48 <b>double bit</b>" in listed
    assert "gpu-seen" in listed


def test_throttled_gpu_is_labelled_at_the_start_of_the_throttling(
    reads: Reads, stored: tuple[EmbeddedStore, SyntheticRun]
) -> None:
    figure = figure_of(replace(SHOWN, family=Family.GPU), reads)
    (note,) = (note for note in figure.layout.annotations if note.text == "gpu1 throttled: heat")
    assert note.x == pytest.approx(local_ms(stored[1].started_ns + 10 * S), abs=1_001)
    assert [trace.name for trace in figure.data][2:] == ["gpu0", "gpu1", "gpu1 heat", "gpu1 heat (hardware)"]
    pieces = {shape.yref for shape in figure.layout.shapes if shape.x0 == note.x}
    assert pieces == {"y domain", "y2 domain", "y3 domain"}, "no line crosses a heading"


def test_sentence_about_a_host_is_the_same_for_all_samples(reads: Reads) -> None:
    titles = [text_of(replace(SHOWN, family=family), reads, "fleet-title") for family in Family]
    assert all("2 fault events shown, 1 GPU throttled at times, 2 other events, 1 mark." in title for title in titles)


def test_samples_of_a_host_leave_out_single_cores(reads: Reads) -> None:
    figure = figure_of(replace(SHOWN, family=Family.HOST), reads)
    assert [trace.name for trace in figure.data][2:] == ["used", "processor"]


def test_host_without_samples_shows_its_steps_and_a_note(reads: Reads) -> None:
    state = replace(SHOWN, host=SILENT)
    assert [trace.name for trace in figure_of(state, reads).data] == ["rank 6", "rank 7"]
    assert "has no network samples" in text_of(state, reads, "fleet-title")
    assert "None in these steps" in text_of(state, reads, "happened")


def test_hint_about_missing_samples_does_not_deny_a_device_with_events(reads: Reads) -> None:
    shown, link_up = selection(SHOWN, reads), HostEvent(at_ns=1, host=SICK, device="eth0", name="link-up", text="")
    scene = HostScene(first_ns=0, last_ns=1, ranks=(), series=(), events=(), marks=())
    assert "if the host has no network card, or if" in no_samples(shown, scene, has_others=False)
    with_event = replace(scene, events=(link_up,))
    assert "network card" not in no_samples(shown, with_event, has_others=False)
    assert "if the host has no GPU, or if" in no_samples(
        replace(shown, family=Family.GPU), with_event, has_others=False
    )


def test_counter_without_change_is_drawn_until_the_newest_sample_of_the_host() -> None:
    def samples(at_s: list[int], value: list[float]) -> HostSeries:
        numbers = np.array(value)
        return HostSeries(host="h", device="gpu2", at_ns=np.array(at_s) * S, value=numbers, mean=numbers)

    clock = "gpu-sm-clock-mhz", samples([*range(31)], [1980.0] * 31)
    stopped = "gpu-throttle-thermal-ns", samples([0, 1, 2, 3], [0.0, 1e9, 2e9, 3e9])
    moving = "gpu-throttle-power-ns", samples([27, 28, 29], [0.0, 1e9, 2e9])
    curves = {
        curve.kind: curve for panel in curves_of(PANELS[Family.GPU], [clock, stopped, moving]) for curve in panel.curves
    }
    assert curves["heat"].at_ns[-1] == 30 * S
    assert curves["heat"].value.tolist() == [100.0, 100.0, 100.0, 0.0, 0.0]
    assert curves["power cap"].value.tolist() == [100.0] * 3, "the next sample is not late"


def test_fleet_page_opens_on_the_host_of_the_worst_finding(reads: Reads) -> None:
    assert selection(ViewState(view=View.FLEET, run=RUN), reads).host == SICK


def test_a_view_that_names_its_host_does_not_wait_for_the_detectors(stored: tuple[EmbeddedStore, SyntheticRun]) -> None:
    reader = Counting(StoreReader(stored[0]))
    reads = Reads(reader)
    assert draw_chart("host", SHOWN, reads, None)
    assert "OperationColumns" not in reader.asked
    asked = dict(reader.asked)
    assert draw_chart("host", SHOWN, reads, None)
    assert reader.asked["HostSamples"] == asked["HostSamples"] == 1


@pytest.mark.parametrize(("host", "steps"), [("nobody's", None), (SICK, StepRange(400, 500))])
def test_unknown_host_or_steps_are_reported_and_the_chart_is_hidden(
    reads: Reads, host: str, steps: StepRange | None
) -> None:
    state = replace(SHOWN, host=host, steps=steps)
    assert "choose" in text_of(state, reads, "fleet-title").lower()
    plotted = draw_chart("host", state, reads, None)
    assert plotted is not None
    assert plotted.panel == "panel hidden"
    assert "could not be drawn" not in text_of(state, reads, "fleet-controls")


def test_store_pools_long_series_of_a_host(stored: tuple[EmbeddedStore, SyntheticRun]) -> None:
    with memory_store() as store:
        run = SyntheticRun(run_id="long", topology=Topology(dp=2), slow={})
        run.introduce(store)
        run.advance(store, MAX_POINTS + 200)
        reads = Reads(StoreReader(store))
        state = ViewState(view=View.FLEET, run="long")
        found = host_scene(reads, reads.facts(state), "gpu-01", ("nic-up",), StepRange(0, MAX_POINTS + 199))
        assert {one.rank: len(one.step) for one in found.ranks} == {0: 350, 1: 350}


def test_host_table_of_many_hosts_lists_fifty_and_counts_the_others() -> None:
    with memory_store() as store:
        run = SyntheticRun(run_id="wide", topology=Topology(dp=120), slow={})
        run.introduce(store)
        run.advance(store, 2)
        state = ViewState(view=View.FLEET, run="wide", host="gpu-60", family=Family.HOST)
        said = text_of(state, Reads(StoreReader(store)), "hosts")
        assert "9 more hosts with fewer faults not listed" in said
        assert said.count("run-link") == 51
