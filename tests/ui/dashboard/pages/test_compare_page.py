"""The compare page: both sides in the address, the verdict, the table, and its charts."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from diagnose.simulate.noise import RECORDED
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.deadline import until
from tests.memory_store import memory_store
from tests.ui.simulated_run import store_simulated
from tests.ui.words_of_pages import texts
from ui.dashboard.address import parse_search
from ui.dashboard.data import Reads
from ui.dashboard.pages import PAGES
from ui.dashboard.pages.compare.page import control_values
from ui.dashboard.pages.controls import after_controls
from ui.dashboard.serving.drawing import draw_canvas, draw_chart, draw_region
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


def test_loss_chart_shows_both_losses_in_the_compared_steps(reads: Reads) -> None:
    losses = draw_chart("compare-loss", SLOWER, reads, None)
    assert losses is not None
    lines = losses.figure["data"]
    assert [(line["name"], line["x"][0], line["x"][-1]) for line in lines] == [
        ("A: base/0", 10, 39),
        ("B: slow/0", 10, 39),
    ]
    none = draw_chart("compare-loss", replace(SLOWER, a="slow/0"), reads, None)
    assert none is not None
    assert none.kind == ""


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
    assert values | {"a": "base/0", "a-part": "steps=0-19", "b": "slow/0", "b-part": ""} == values
    default = after_controls(ViewState(view=View.COMPARE, run="slow"), {"a-part": "steps=0-19"})
    assert control_values(default, reads)["a"] == "base/0"
    assert control_values(default, reads)["a-part"] == "steps=0-19"
    ranges = after_controls(SLOWER, {"a": "slow/0"})
    for part, name in (("a-part", "steps=0-19"), ("b-part", "steps=20-39")):
        ranges = after_controls(ranges, {part: name})
    assert (ranges.a, ranges.b) == ("slow/0/steps=0-19", "slow/0/steps=20-39")
    assert parse_search(ranges.search()).state == ranges
    assert "No difference beyond noise" in of("compare-says", reads, ranges)


def test_two_steps_are_on_one_time_axis_with_the_difference_of_their_parts(reads: Reads) -> None:
    state = parse_search("?view=compare&run=slow&a=base/0&b=slow/0&a-step=20&step=30&group=dp&rank=3&pins=0").state
    says = of("two-steps-says", reads, state)
    assert "Step 30 of B takes" in says
    assert "Step 20 of A takes" in says or "Step 20 of A, a typical step, takes" in says
    assert "the compute time of rank 3 changed most" in says
    assert "A: base/0, step 20" in of("step-a-title", reads, state)
    drawn = [draw_canvas(f"step-{side}", state, reads, None) for side in "ab"]
    spans = [canvas.data for canvas in drawn if canvas is not None and canvas.data is not None]
    assert len({data["end"] for data in spans}) == 1
    assert [[row["rank"] for row in data["rows"]] for data in spans] == [[3, 7, 0]] * 2  # type: ignore[attr-defined]
    assert [data["step"] for data in spans] == [20, 30]
    again = draw_canvas("step-a", state, reads, drawn[0] and drawn[0].kind)
    assert again is not None
    assert again.data is None


def test_both_steps_show_the_group_of_the_suspect_of_b_by_default(reads: Reads) -> None:
    until(lambda: reads.reports.of(reads.newest(SLOWER)), what="the report")
    drawn = [draw_canvas(f"step-{side}", SLOWER, reads, None) for side in "ab"]
    rows = [[row["rank"] for row in canvas.data["rows"]] for canvas in drawn if canvas and canvas.data]  # type: ignore[attr-defined]
    assert rows == [[1, 3]] * 2


def test_steps_of_one_attempt_are_a_typical_and_the_slowest_one(reads: Reads) -> None:
    state = ViewState(view=View.COMPARE, run="slow", a="slow/0", b="slow/0")
    assert "A and B are the same attempt" in of("compare-says", reads, state)
    assert "Step 0 of A, a typical step" not in of("two-steps-says", reads, state)
    assert ", a typical step, takes" in of("two-steps-says", reads, state)
    facts = reads.facts(state)
    slowest = int(facts.steps.step[facts.steps.duration_ns.argmax()])
    assert f"Step {slowest} of B takes" in of("two-steps-says", reads, state)


def test_missing_step_is_named_and_a_typical_one_is_shown(reads: Reads) -> None:
    state = parse_search("?view=compare&run=slow&a=base/0&b=slow/0&a-step=9999").state
    assert "Step 9999 is not stored in A. Step " in of("two-steps-says", reads, state)


def test_controls_choose_the_steps_of_both_sides(reads: Reads) -> None:
    chosen = after_controls(after_controls(SLOWER, {"a-step": 20}), {"step": 30})
    assert chosen.search().endswith("&a=base%2F0&b=slow%2F0&a-step=20")
    assert (control_values(chosen, reads)["a-step"], control_values(chosen, reads)["step"]) == (20, 30)
    assert after_controls(chosen, {"a-step": ""}).timeline.a_step is None
    assert chosen.clear().timeline.a_step is None


@pytest.mark.parametrize(
    ("a", "text"),
    [("nobody", "No run is called nobody"), ("base/x", "'x' in 'base/x'"), ("slow/0", "A and B are the same attempt")],
)
def test_page_explains_why_two_sides_cannot_be_compared(reads: Reads, a: str, text: str) -> None:
    assert text in of("compare-says", reads, ViewState(view=View.COMPARE, run="slow", a=a))
