"""An address, the view it stands for, and the choices that change it."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from telemetry.stages import Stage
from tests.each_case import each_case
from ui.dashboard.address import parse_search
from ui.dashboard.chart_view import MAX_METRIC_NAME, MAX_METRICS, SMOOTHINGS, Axis, ChartRange, ChartView, Scale
from ui.dashboard.timeline_view import MAX_STEPS, Counters, RankOrder, SpanColumn, TableView, TimelineView
from ui.dashboard.view_state import (
    LARGEST,
    MAX_PINS,
    Area,
    Clock,
    Colour,
    Family,
    Form,
    Group,
    Metric,
    RowOrder,
    RunOrder,
    SpanKey,
    StepRange,
    TimeRange,
    View,
    ViewState,
)

numbers = st.integers(0, LARGEST)
times = st.tuples(st.integers(0, 10**14), st.integers(1, 10**14)).map(lambda pair: (pair[0], sum(pair)))
names = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=MAX_METRIC_NAME)
states = st.builds(
    ViewState,
    view=st.sampled_from(View),
    run=st.text(st.characters(categories=("L", "N", "P", "S")), max_size=60),
    attempt=st.none() | numbers,
    stage=st.sampled_from(Stage),
    metric=st.sampled_from(Metric),
    clock=st.sampled_from(Clock),
    only=st.text(st.characters(categories=("L", "N", "P", "S")), max_size=60),
    sort=st.sampled_from(RowOrder),
    top=st.none() | st.integers(1, LARGEST),
    colour=st.sampled_from(Colour),
    form=st.sampled_from(Form),
    steps=st.none() | st.builds(lambda a, b: StepRange(min(a, b), max(a, b)), numbers, numbers),
    group=st.none() | st.sampled_from(Group),
    rank=st.none() | numbers,
    step=st.none() | numbers,
    span=st.none() | st.builds(SpanKey, numbers, st.integers(0, 10**17)),
    zoom=st.none() | times.map(lambda pair: TimeRange(*pair)),
    pins=st.lists(numbers, max_size=MAX_PINS, unique=True).map(tuple),
    find=st.text(st.characters(categories=("L", "N", "P", "S")), max_size=60),
    order=st.sampled_from(RunOrder),
    tag=st.sampled_from(["", "baseline", "driver-560", "größe+1"]),
    area=st.none() | st.builds(lambda pair, top, bottom: Area(*pair, top, bottom), times, numbers, numbers),
    ideal=st.booleans(),
    timeline=st.builds(
        TimelineView,
        num_steps=st.integers(1, MAX_STEPS),
        counters=st.sampled_from(Counters),
        order=st.sampled_from(RankOrder),
        table=st.none()
        | st.builds(
            TableView, column=st.sampled_from(SpanColumn), is_descending=st.booleans(), page=st.integers(1, 99)
        ),
    ),
    host=st.text(st.characters(categories=("L", "N", "P", "S")), max_size=60),
    family=st.none() | st.sampled_from(Family),
    a=st.text(st.characters(categories=("L", "N", "P", "S")), max_size=60),
    b=st.text(st.characters(categories=("L", "N", "P", "S")), max_size=60),
    charts=st.builds(
        ChartView,
        axis=st.sampled_from(Axis),
        range=st.sampled_from(ChartRange),
        smooth=st.sampled_from([0, *SMOOTHINGS]),
        scale=st.sampled_from(Scale),
        metrics=st.none() | st.lists(names, max_size=MAX_METRICS, unique=True).map(tuple),
    ),
)


@given(states)
def test_an_address_restores_its_view_exactly(state: ViewState) -> None:
    assert parse_search(state.search()) == (state, ())


@given(st.text(max_size=300))
def test_parse_search_accepts_any_text(search: str) -> None:
    parse_search("?" + search)


@given(
    st.dictionaries(
        st.sampled_from(
            ["view", "stage", "steps", "rank", "span", "time", "group", "zoom", "pins", "area", "table", "num-steps"]
        ),
        st.text(),
    )
)
def test_invalid_field_of_an_address_takes_its_default_with_a_note(given_fields: dict[str, str]) -> None:
    search = "&".join(f"{name}={value}" for name, value in given_fields.items())
    state, notes = parse_search("?" + search)
    assert isinstance(state, ViewState)
    assert all("in the address is not valid; the default is shown" in note for note in notes)


@each_case(
    "text",
    [
        "step=-1",
        "step=1e3",
        "steps=9-1",
        "rank=99999999999",
        "span=5",
        "metric=<b>",
        "zoom=5",
        "zoom=9-5",
        "zoom=5-5",
        "zoom=-5-9",
        "zoom=0-9999999999999999",
        "pins=1.1",
        "pins=1.2.3.4.5.6.7.8.9",
        "pins=a",
        "family=disk",
        "colour=red",
        "form=4d",
        "axis=steps",
        "range=5",
        "smooth=12",
        "scale=sqrt",
        "metrics=a,a,",
        "metrics=1,2,3,4,5,6,7,8,9,",
        "metrics=a%2507,",
        "area=1-2-3",
        "area=1-2-3-4-5",
        "area=2-1-3-4",
        "area=1-2-3-99999999999",
    ],
)
def test_note_names_the_invalid_field_of_an_address(text: str) -> None:
    state, notes = parse_search(f"?run=a&{text}")
    assert state == ViewState(view=View.OVERVIEW, run="a")
    assert notes[0].startswith(text.split("=")[0] + "=")


CHOSEN = ViewState(
    view=View.TIMELINE,
    run="a",
    attempt=0,
    stage=Stage.OPTIMIZER,
    metric=Metric.SHARE,
    steps=StepRange(10, 20),
    step=12,
    group=Group.DP,
    rank=5,
    pins=(2, 3),
    span=SpanKey(5, 1),
    zoom=TimeRange(3, 9),
    area=Area(3, 9, 5, 5),
    host="h",
    find="gpt",
    a="a/0/steps=0-9",
)


def test_change_of_one_selection_keeps_all_others_that_stay_valid() -> None:
    assert CHOSEN.at_stage(Stage.GC) == replace(CHOSEN, stage=Stage.GC)
    assert CHOSEN.at_step(13) == replace(CHOSEN, step=13, span=None, area=None)
    assert CHOSEN.at_rank(6) == replace(CHOSEN, rank=6, span=None, zoom=None, area=None)
    assert CHOSEN.at_group(Group.TP) == replace(CHOSEN, group=Group.TP, span=None, zoom=None, area=None)
    assert CHOSEN.at_steps(StepRange(12, 99)) == replace(CHOSEN, steps=StepRange(12, 99))
    assert CHOSEN.at_steps(StepRange(13, 99)) == replace(CHOSEN.at_step(None), steps=StepRange(13, 99))
    for same in (CHOSEN.at_step(12), CHOSEN.at_rank(5), CHOSEN.at_group(Group.DP), CHOSEN.at_run("a", 0)):
        assert same == CHOSEN


@each_case(("run", "attempt"), [("b", 0), ("a", 1), ("", None)])
def test_change_of_run_resets_steps_ranks_and_hosts_and_keeps_stage_and_search(run: str, attempt: int | None) -> None:
    other = ViewState(view=CHOSEN.view, run=run, attempt=attempt, find="gpt")
    assert CHOSEN.at_run(run, attempt) == replace(other, stage=CHOSEN.stage, metric=CHOSEN.metric, group=CHOSEN.group)


def test_the_steps_around_an_onset_stay_within_what_an_address_can_hold() -> None:
    assert StepRange.around(100) == StepRange(80, 179)
    for onset in (0, LARGEST):
        state = ViewState(run="a", steps=StepRange.around(onset))
        assert parse_search(state.search()) == (replace(state, view=View.RUNS), ())


def test_open_range_of_steps_has_no_upper_end_and_is_kept_in_the_address() -> None:
    state = parse_search("?run=a&view=heatmap&steps=100-").state
    assert state.steps == StepRange(100, LARGEST)
    assert "steps=100-" in state.search()


def test_empty_address_shows_the_list_of_runs() -> None:
    assert parse_search(None).state.view is View.RUNS
    assert parse_search("?run=a").state.view is View.OVERVIEW
