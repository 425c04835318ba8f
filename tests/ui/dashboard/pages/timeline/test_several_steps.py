"""Neighbouring steps side by side."""

from dataclasses import replace

from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.each_case import each_case
from tests.ui.counting import Counting
from tests.ui.dashboard.pages.timeline.test_spans_buffer import columns_of
from tests.ui.few_spans import made_facts
from tests.ui.synthetic_run import SyntheticRun
from tests.ui.words_of_pages import texts
from ui.dashboard.components import written
from ui.dashboard.data import Reads
from ui.dashboard.pages.controls import after_controls
from ui.dashboard.pages.timeline.page import PAGE
from ui.dashboard.pages.timeline.selection import MAX_SPANS, fitting_steps, selection
from ui.dashboard.serving.drawing import draw_canvas
from ui.dashboard.timeline_view import MAX_STEPS, TimelineView
from ui.dashboard.view_state import Group, SpanKey, TimeRange, View, ViewState
from ui.dashboard.wording import duration

THREE = ViewState(view=View.TIMELINE, run="made", group=Group.ALL, rank=5, step=20, timeline=TimelineView(num_steps=3))


def said(name: str, state: ViewState, reads: Reads) -> str:
    return " ".join(texts(written(PAGE.regions[name].draw(state, reads))))


def test_each_span_has_its_step_number_and_operations_stay_within_one_step(reads: Reads) -> None:
    painted = draw_canvas("timeline", THREE, reads, None)
    assert painted is not None
    assert painted.data is not None
    columns, steps = columns_of(painted.data), columns_of(painted.data, "steps")
    assert painted.data["step"] == 20
    assert sorted(set(steps["number"])) == [0, 1, 2]
    assert len(steps["number"]) == 3 * 8
    step_of: dict[int, set[int]] = {}
    for flow, number in zip(columns["flow"], columns["number"], strict=True):
        step_of.setdefault(flow, set()).add(number)
    del step_of[0]
    assert len(step_of) > 100
    assert all(len(numbers) == 1 for numbers in step_of.values())


def test_shown_steps_begin_with_the_selected_step_if_enough_steps_follow(reads: Reads) -> None:
    assert selection(THREE, reads).steps == (20, 22)
    assert selection(replace(THREE, step=38), reads).steps == (37, 39)
    assert selection(replace(THREE, ideal=True), reads).steps == (20, 20)
    assert "Steps 20 to 22, all ranks" in said("spans-title", THREE, reads)
    assert "Shares of step 20" in said("details", THREE, reads)
    assert "The ideal timeline shows one step." in said("spans-title", replace(THREE, ideal=True), reads)


def test_start_of_a_span_is_relative_to_its_own_step(reads: Reads) -> None:
    shown = selection(THREE, reads)
    of_step = reads.spans(shown.facts.summary, 22, tuple(range(8)))
    optimizer = of_step.where((of_step.rank == 5) & (of_step.stage == Stage.OPTIMIZER))
    text = said("details", replace(THREE, span=SpanKey(5, int(optimizer.seq[0]))), reads)
    since_ns = int(optimizer.start_ns[0] - of_step.start_ns.min())
    assert f"step 22 start in the step {duration(since_ns)}" in text


def test_ten_steps_need_as_many_queries_as_one(store: EmbeddedStore, run: SyntheticRun) -> None:
    asked = []
    for number in (1, MAX_STEPS):
        counting = Counting(StoreReader(store))
        draw_canvas("timeline", replace(THREE, timeline=TimelineView(num_steps=number)), Reads(counting), None)
        asked.append(
            {name: count for name, count in counting.asked.items() if name in ("Spans", "HostClocks", "Lanes")}
        )
    assert asked[0] == asked[1]
    assert asked[0]["Spans"] == 1


@each_case(("spans_in_a_step", "num_ranks", "expected"), [(8_000, 8, 6), (8_000, 2, 25), (10**6, 8, 1)])
def test_number_of_shown_steps_is_limited_by_the_number_of_spans(
    reads: Reads, spans_in_a_step: int, num_ranks: int, expected: int
) -> None:
    """``spans_in_a_step``: the spans of all eight ranks. A picture has at most 50,000 spans."""
    steps = reads.facts(THREE).steps
    facts = replace(made_facts(8), num_spans=spans_in_a_step * len(steps.step), steps=steps)
    assert MAX_SPANS == 50_000
    assert fitting_steps(facts, num_ranks) == expected


def test_control_for_the_number_of_steps_clears_the_zoom() -> None:
    zoomed = replace(THREE, zoom=TimeRange(5, 10))
    after = after_controls(zoomed, {"num-steps": 99})
    assert (after.timeline.num_steps, after.zoom) == (MAX_STEPS, None)
    assert after_controls(zoomed, {"num-steps": "x"}) == zoomed
    assert after_controls(zoomed, {"num-steps": ""}).timeline.num_steps == 1
