"""The compare page: both sides in the address, the verdict, the table, and its charts."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from diagnose.simulate.noise import RECORDED
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.memory_store import memory_store
from tests.ui.simulated_run import store_simulated
from tests.ui.words_of_pages import texts
from ui.dashboard.address import parse_search
from ui.dashboard.data import Reads
from ui.dashboard.pages import PAGES
from ui.dashboard.pages.compare.page import control_values
from ui.dashboard.pages.controls import after_controls
from ui.dashboard.serving.drawing import draw_chart, draw_region
from ui.dashboard.view_state import View, ViewState

SLOWER = ViewState(view=View.COMPARE, run="slow", a="base/0", b="slow/0")


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedStore]:
    with memory_store() as store:
        store_simulated(store, "base", noise=RECORDED)
        store_simulated(store, "slow", "slow:rank=3,factor=1.15", noise=RECORDED, seed=2)
        yield store


@pytest.fixture(scope="module")
def reads(store: EmbeddedStore) -> Reads:
    return Reads(StoreReader(store))


def of(region: str, reads: Reads, state: ViewState = SLOWER) -> str:
    """The words of a region."""
    drawn = draw_region(region, state, reads, by_clock=False)
    assert drawn is not None
    return " ".join(" ".join(texts(drawn.make())).split())


def test_page_shows_the_verdict_the_slower_ranks_and_the_stages(reads: Reads) -> None:
    assert "slower than A. A step takes" in of("compare-says", reads)
    assert "A: base/0, dp=2,pp=2,tp=2, 30 steps" in of("compare-says", reads)
    assert "rank 3 gpu-001 forward-compute +1" in of("compare-named", reads)
    stages = of("compare-stages", reads)
    assert "step, mean " in stages
    assert "backward-compute " in stages


def test_the_charts_show_both_runs_and_every_rank_with_its_host(reads: Reads) -> None:
    steps = draw_chart("compare-steps", SLOWER, reads, None)
    assert steps is not None
    assert [line["name"] for line in steps.figure["data"]] == ["A: base/0", "B: slow/0", "events"]
    ranks = draw_chart("compare-ranks", SLOWER, reads, None)
    assert ranks is not None
    (cells,) = ranks.figure["data"]
    ratios = np.array(cells["z"])
    assert ratios.shape == (2, 8)
    assert ratios.argmax(axis=1).tolist() == [3, 3]
    assert cells["text"][0][3] == "rank 3 on gpu-001<br>forward-compute"


def test_click_on_an_event_opens_its_run_and_keeps_the_comparison(reads: Reads) -> None:
    chart = PAGES[View.COMPARE].charts["compare-steps"]
    assert chart.after_click is not None
    turned = replace(SLOWER, a="slow/0", b="base/0")
    for state, name in ((SLOWER, "B: slow rank"), (turned, "A: slow rank")):
        figure = chart.draw(state, reads)
        assert figure is not None
        number = next(at for at, text in enumerate(figure.data[2].hovertext) if name in text)
        there = chart.after_click(state, reads, {"customdata": figure.data[2].customdata[number]})
        assert (there.run, there.attempt, there.rank, there.view) == ("slow", 0, 3, View.TIMELINE)
        assert (there.a, there.b) == (state.a, state.b)
    assert chart.after_click(SLOWER, reads, {"x": 3, "customdata": 7}) == SLOWER


def test_controls_change_one_side_and_keep_the_other(reads: Reads) -> None:
    values = control_values(ViewState(view=View.COMPARE, run="slow", a="base/0/steps=0-19"), reads)
    assert values == {"a": "base/0", "a-part": "steps=0-19", "b": "slow/0", "b-part": ""}
    default = after_controls(ViewState(view=View.COMPARE, run="slow"), {"a-part": "steps=0-19"})
    assert control_values(default, reads)["a"] == "base/0"
    assert control_values(default, reads)["a-part"] == "steps=0-19"
    ranges = after_controls(SLOWER, {"a": "slow/0"})
    for part, name in (("a-part", "steps=0-19"), ("b-part", "steps=20-39")):
        ranges = after_controls(ranges, {part: name})
    assert (ranges.a, ranges.b) == ("slow/0/steps=0-19", "slow/0/steps=20-39")
    assert parse_search(ranges.search()).state == ranges
    assert "No difference beyond noise" in of("compare-says", reads, ranges)


@pytest.mark.parametrize(
    ("a", "text"),
    [("nobody", "No run is called nobody"), ("base/x", "'x' in 'base/x'"), ("slow/0", "A and B are the same steps")],
)
def test_page_explains_why_two_sides_cannot_be_compared(reads: Reads, a: str, text: str) -> None:
    assert text in of("compare-says", reads, ViewState(view=View.COMPARE, run="slow", a=a))
