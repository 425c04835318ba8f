"""The compare page: both sides in the address, the verdict, the table, and its charts."""

from collections.abc import Iterator

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


@pytest.fixture
def reads(store: EmbeddedStore) -> Reads:
    return Reads(StoreReader(store))


def of(region: str, reads: Reads, state: ViewState = SLOWER) -> str:
    """The words of a region."""
    drawn = draw_region(region, state, reads, by_clock=False)
    assert drawn is not None
    return " ".join(" ".join(texts(drawn.make())).split())


def test_the_verdict_is_on_top_and_ranks_and_stages_below(reads: Reads) -> None:
    assert "slower than A. A step takes" in of("compare-says", reads)
    assert "A: base/0, dp=2,pp=2,tp=2, 30 steps" in of("compare-says", reads)
    assert "rank 3 gpu-001 forward-compute +1" in of("compare-named", reads)
    stages = of("compare-stages", reads)
    assert "step, mean " in stages
    assert "backward-compute " in stages


def test_the_charts_show_both_runs_and_every_rank_with_its_host(reads: Reads) -> None:
    steps = draw_chart("compare-steps", SLOWER, reads, None)
    assert steps is not None
    assert [line["name"] for line in steps.figure["data"]] == ["A: base/0", "B: slow/0"]
    ranks = draw_chart("compare-ranks", SLOWER, reads, None)
    assert ranks is not None
    (cells,) = ranks.figure["data"]
    ratios = np.array(cells["z"])
    assert ratios.shape == (2, 8)
    assert ratios.argmax(axis=1).tolist() == [3, 3]
    assert cells["text"][0][3] == "rank 3 on gpu-001<br>forward-compute"


def test_controls_change_a_side_and_keep_the_other_one(reads: Reads) -> None:
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
def test_what_cannot_be_compared_is_explained(reads: Reads, a: str, text: str) -> None:
    assert text in of("compare-says", reads, ViewState(view=View.COMPARE, run="slow", a=a))
