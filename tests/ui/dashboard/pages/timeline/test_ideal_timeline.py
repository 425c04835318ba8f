"""The ideal timeline under the real one, on runs in a store, without a browser."""

import json
import re
from dataclasses import replace

import pytest

from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Reader, StoreReader
from tests.deadline import until
from tests.each_case import each_case
from tests.ui.dashboard.pages.timeline.test_spans_buffer import columns_of
from tests.ui.remembering import Remembering
from tests.ui.simulated_run import store_simulated
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.address import parse_search
from ui.dashboard.data import Reads
from ui.dashboard.data.cache import BackgroundAnswers
from ui.dashboard.data.settings import ReadSettings
from ui.dashboard.pages.controls import after_controls
from ui.dashboard.pages.timeline.ideal import ideal_request, loss_text
from ui.dashboard.pages.timeline.ideal_strip import LANES
from ui.dashboard.serving.drawing import draw_canvas, draw_region
from ui.dashboard.serving.live import freshness
from ui.dashboard.view_state import Group, SpanKey, StepRange, View, ViewState
from ui.dashboard.wording import duration

SLOW = ViewState(view=View.TIMELINE, run="slow", group=Group.PP, rank=4, step=25, ideal=True)
LONG_S = 60.0


@pytest.fixture(scope="module")
def slow(store: EmbeddedStore) -> Reader:
    """A run whose rank 5 is slow."""
    store_simulated(store, "slow", "slow:rank=5,factor=1.4", num_microbatches=8)
    return Remembering(StoreReader(store))


@pytest.fixture(scope="module")
def patient(slow: Reader) -> Reads:
    """Reads that wait for their results."""
    return waiting(Reads(slow))


def waiting(reads: Reads) -> Reads:
    reads.background = BackgroundAnswers(4, wait_s=LONG_S)
    return reads


def said(state: ViewState, reads: Reads) -> str:
    drawn = draw_region("ideal", state, reads, by_clock=False)
    assert drawn is not None
    return json.dumps(drawn.make(), ensure_ascii=False)


def picture(state: ViewState, reads: Reads) -> dict[str, object]:
    painted = draw_canvas("timeline", state, reads, None)
    assert painted is not None
    assert painted.data is not None
    return painted.data


def test_lost_time_is_reported_in_numbers(patient: Reads) -> None:
    text = said(SLOW, patient)
    assert "if all ranks were equally fast, it would take" in text
    assert "is lost." in text
    assert "all ranks in steps 20 to 39" in text
    assert "The strip leaves out tp-all-reduce: " in text


def test_each_row_has_the_ideal_strip_of_its_pipeline_rank_with_the_same_start(patient: Reads) -> None:
    said(SLOW, patient)
    data = picture(SLOW, patient)
    ideal = data["ideal"]
    assert isinstance(ideal, dict)
    columns, real = columns_of(ideal), columns_of(data)
    assert (ideal["rows"], ideal["groups"]) == ([0, 1], 2)
    assert ideal["begin"] == min(columns["start"]) == min(real["start"])
    assert ideal["lost"] > 0
    for row, group in enumerate(ideal["rows"]):
        real_forwards = [one for one, at in zip(real["stage"], real["row"], strict=True) if at == row]
        ideal_forwards = [one for one, at in zip(columns["stage"], columns["row"], strict=True) if at == group]
        assert ideal_forwards.count(Stage.FORWARD_COMPUTE) == real_forwards.count(Stage.FORWARD_COMPUTE) > 0
    assert set(columns["lane"]) <= set(range(len(LANES), len(data["lanes"])))  # type: ignore[arg-type]


def test_picture_and_sentence_have_the_same_ideal_time(patient: Reads) -> None:
    text, data = said(SLOW, patient), picture(SLOW, patient)
    ideal, columns, tick_ns = data["ideal"], columns_of(data["ideal"]), data["tick_ns"]  # type: ignore[arg-type]
    assert isinstance(ideal, dict)
    assert isinstance(tick_ns, int)
    facts = patient.facts(SLOW)
    (took_ns,) = facts.steps.duration_ns[facts.steps.step == 25]
    lost_ns = ideal["lost"] * tick_ns
    assert (ideal["end"] - ideal["begin"]) * tick_ns + lost_ns == pytest.approx(took_ns, abs=3 * tick_ns)
    assert f"{duration(lost_ns)} ({lost_ns / took_ns:.1%}) is lost." in text
    ends = [start + lasted for start, lasted in zip(columns["start"], columns["duration"], strict=True)]
    assert max(ends) == pytest.approx(ideal["end"], abs=1)
    assert "All times of the strip are multiplied by 0.996: the measured step time divided by the replayed" in text


def test_ranks_of_one_pipeline_rank_share_an_ideal_strip(patient: Reads) -> None:
    replicas = replace(SLOW, group=Group.DP)
    said(replicas, patient)
    ideal = picture(replicas, patient)["ideal"]
    assert isinstance(ideal, dict)
    assert (ideal["rows"], ideal["groups"], set(columns_of(ideal)["row"])) == ([0, 0], 1, {0})


def test_real_timeline_is_drawn_first_and_freshness_changes_when_the_ideal_one_is_ready(slow: Reader) -> None:
    reads = Reads(slow)
    first = draw_canvas("timeline", SLOW, reads, None)
    assert first is not None
    assert "ideal" not in picture(SLOW, reads)
    before = freshness(SLOW, reads)
    said(SLOW, reads)
    until(lambda: freshness(SLOW, reads) != before, what="the ideal timeline")
    after = draw_canvas("timeline", SLOW, reads, first.kind)
    assert after is not None
    assert after.kind != first.kind
    assert "ideal" in picture(SLOW, reads)


def test_details_of_a_selected_span_show_its_ideal_duration(patient: Reads) -> None:
    said(SLOW, patient)
    held = patient.spans(patient.facts(SLOW).summary, 25, (5,))
    (second,) = held.where(held.stage == Stage.BACKWARD_COMPUTE).where(slice(1, 2)).seq.tolist()
    chosen = replace(SLOW, rank=5, span=SpanKey(5, second))
    drawn = draw_region("details", chosen, patient, by_clock=False)
    assert drawn is not None
    assert re.search(r"\d ms: \d+(\.\d)? ms less", json.dumps(drawn.make()))


def test_ideal_timeline_is_absent_when_its_control_is_off(patient: Reads) -> None:
    plain = replace(SLOW, ideal=False)
    assert said(plain, patient) == "null"
    assert "ideal" not in picture(plain, patient)
    assert freshness(plain, patient) != freshness(SLOW, patient)


def test_ideal_control_sets_the_address_and_a_change_of_group_keeps_it() -> None:
    shown = after_controls(replace(SLOW, ideal=False), {"ideal": "shown"})
    assert parse_search(after_controls(shown, {"group": "all"}).search()).state.ideal
    assert not after_controls(shown, {"ideal": "hidden"}).ideal
    assert parse_search("?view=timeline&ideal=perhaps").notes


def test_step_that_cannot_be_replayed_shows_the_reason_and_keeps_the_real_timeline(store: EmbeddedStore) -> None:
    run = SyntheticRun(run_id="circle")
    run.introduce(store)
    run.advance(store, 3)
    run.beat(store, at_ns=run.now_ns, ended=True)
    reads, state = (
        waiting(Reads(StoreReader(store))),
        ViewState(view=View.TIMELINE, run="circle", rank=0, step=1, ideal=True),
    )
    assert "No ideal timeline for this step" in said(state, reads)
    assert "wait for each other in a cycle" in said(state, reads)
    assert "ideal" not in picture(state, reads)


def test_large_run_replays_fewer_steps_and_includes_the_selected_step(slow: Reader) -> None:
    facts = Reads(slow).facts(SLOW)
    each = ideal_request(facts, 25, Reads(slow)).num_operations // 20
    some = waiting(Reads(slow, settings=ReadSettings(max_operations=7 * each)))
    assert ideal_request(facts, 25, some).steps == StepRange(20, 26)
    assert ideal_request(facts, 38, some).steps == StepRange(34, 39)
    assert "in steps 20 to 26" in said(SLOW, some)
    none = waiting(Reads(slow, settings=ReadSettings(max_operations=each - 1)))
    assert "too many to replay for a page" in said(SLOW, none)
    assert "rankscope diagnose whatif slow --attempt 0 --first-step 25 --last-step 25" in said(SLOW, none)
    assert "ideal" not in picture(SLOW, none)


@each_case(
    ("took_ns", "ideal_ns", "end"),
    [
        (442e6, 380e6, "would take 380 ms: 62.0 ms (14.0%) is lost."),
        (
            747.2e6,
            580.6e6,
            "takes 747 ms; if all ranks were equally fast, it would take 580 ms: 167 ms (22.3%) is lost.",
        ),
        (380e6, 381e6, "381 ms: no time is lost."),
    ],
)
def test_loss_text_is_a_sentence_with_numbers_that_fit_each_other(took_ns: float, ideal_ns: float, end: str) -> None:
    assert loss_text(took_ns, ideal_ns).endswith(end)
