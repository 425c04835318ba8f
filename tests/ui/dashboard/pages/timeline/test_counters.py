"""Samples of GPUs, network cards and hosts below the lanes of their ranks."""

import time
from dataclasses import replace

import numpy as np
import pytest

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.ui.counting import Counting
from tests.ui.dashboard.pages.timeline.test_spans_buffer import unpacked
from tests.ui.made_fleet import tell_of_clocks, tell_of_hosts
from tests.ui.synthetic_run import SyntheticRun
from tests.ui.words_of_pages import texts
from ui.dashboard.components import written
from ui.dashboard.data import Reads
from ui.dashboard.pages.controls import after_controls
from ui.dashboard.pages.timeline.counters import FULL_SCALE, Curve, counter_curves
from ui.dashboard.pages.timeline.page import PAGE
from ui.dashboard.pages.timeline.selection import selection
from ui.dashboard.serving.drawing import draw_canvas
from ui.dashboard.timeline_view import Counters, TimelineView
from ui.dashboard.view_state import Group, View, ViewState

SHOWN = ViewState(
    view=View.TIMELINE, run="sampled", group=Group.ALL, rank=5, step=20, timeline=TimelineView(counters=Counters.ALL)
)
"""Rank 5 has gpu1 of gpu-03, which is slowed down. gpu-04, with ranks 6 and 7, has no samples."""


@pytest.fixture(scope="module")
def sampled(store: EmbeddedStore) -> Counting:
    run = SyntheticRun(run_id="sampled", device="cuda")
    run.introduce(store)
    run.advance(store, 30)
    tell_of_hosts(store, run)
    tell_of_clocks(store, run, 30)
    return Counting(StoreReader(store))


@pytest.fixture(scope="module")
def reads(sampled: Counting) -> Reads:
    now_s = time.time()
    return Reads(sampled, wall_s=lambda: now_s)


def test_each_rank_has_the_curves_of_its_own_gpu_and_of_its_host(reads: Reads) -> None:
    shown = selection(SHOWN, reads)
    found = counter_curves(shown, Counters.ALL, reads)
    assert [track.title for track in found.tracks] == ["SM clock", "Received", "CPU use"]
    clocks = {curve.ranks: curve for curve in found.curves if curve.track == 0}
    assert sorted(clocks) == [(0,), (1,), (2,), (3,), (4,), (5,)]
    assert (clocks[5,].device, clocks[4,].device) == ("gpu1", "gpu0")
    middle_ns = shown.facts.steps.start_ns[20:21]
    assert [float(clocks[rank,].at(middle_ns)[0]) for rank in (4, 5)] == [1980.0, 1400.0]
    received = {curve.ranks: curve for curve in found.curves if curve.track == 1}
    assert sorted(received) == [(0, 1), (2, 3), (4, 5)]
    assert received[4, 5].at(middle_ns).tolist() == pytest.approx([125.0])


def test_timeline_data_contain_counter_curves_on_the_time_axis_of_the_timeline(reads: Reads) -> None:
    painted = draw_canvas("timeline", SHOWN, reads, None)
    assert painted is not None
    assert painted.data is not None
    counters = painted.data["counters"]
    assert isinstance(counters, dict)
    assert [(track["name"], track["unit"]) for track in counters["tracks"]] == [
        ("SM clock", "MHz"), ("Received", "MB/s"), ("CPU use", "%"),
    ]  # fmt: skip
    of_rank_5 = next(curve for curve in counters["curves"] if curve["rows"] == [5] and curve["track"] == 0)
    at, value = (unpacked(counters[name])[of_rank_5["first"] : of_rank_5["last"]] for name in ("at", "value"))
    assert at[0] < 0 < at[-1]
    before = [share for tick, share in zip(at, value, strict=True) if tick <= 0][-1]
    assert before / FULL_SCALE * counters["tracks"][0]["high"] == pytest.approx(1400, abs=1)


def test_counters_are_also_shown_as_a_table_with_units(reads: Reads) -> None:
    said = texts(written(PAGE.regions["counters"].draw(SHOWN, reads)))
    assert said[1:5] == ["rank", "SM clock, MHz", "Received, MB/s", "CPU use, %"]
    assert said[said.index("5") : said.index("6")] == ["5", "1,400", "125", "50"]
    assert said[said.index("6") : said.index("7")] == ["6", "—", "—", "—"]


def test_hidden_counters_send_no_query_and_shown_ones_a_single_one(sampled: Counting) -> None:
    for counters, number in ((Counters.NONE, 0), (Counters.ALL, 1)):
        sampled.asked.clear()
        reads, state = Reads(sampled), replace(SHOWN, timeline=TimelineView(counters=counters))
        draw_canvas("timeline", state, reads, None)
        PAGE.regions["counters"].draw(state, reads)
        assert sampled.asked["HostSamples"] == number


def test_counter_family_without_samples_shows_a_note(reads: Reads) -> None:
    silent = replace(SHOWN, group=Group.TP, rank=6, timeline=TimelineView(counters=Counters.GPU))
    assert "No samples" in texts(written(PAGE.regions["counters"].draw(silent, reads)))
    assert after_controls(silent, {"counters": "host"}).timeline.counters is Counters.HOST
    assert after_controls(silent, {"counters": "x"}) == silent


def test_level_counter_is_interpolated_and_rate_counter_keeps_its_value() -> None:
    at_ns, value = np.array([0, 100, 200]), np.array([0.0, 10.0, 30.0])
    level = Curve(track=0, ranks=(0,), device="", at_ns=at_ns, value=value, holds=False)
    rate = replace(level, holds=True)
    assert level.during(50, 150) == pytest.approx((5.0, 11.25, 20.0))
    assert rate.during(50, 150) == pytest.approx((0.0, 5.0, 10.0))
