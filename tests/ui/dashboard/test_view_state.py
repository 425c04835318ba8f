"""An address and the view it stands for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.stages import Stage
from ui.dashboard.address import parse_search
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
    RunOrder,
    SpanKey,
    StepRange,
    TimeRange,
    View,
    ViewState,
)

numbers = st.integers(0, LARGEST)
times = st.tuples(st.integers(0, 10**14), st.integers(1, 10**14)).map(lambda pair: (pair[0], sum(pair)))
states = st.builds(
    ViewState,
    view=st.sampled_from(View),
    run=st.text(st.characters(categories=("L", "N", "P", "S")), max_size=60),
    attempt=st.none() | numbers,
    stage=st.sampled_from(Stage),
    metric=st.sampled_from(Metric),
    clock=st.sampled_from(Clock),
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
    area=st.none() | st.builds(lambda pair, top, bottom: Area(*pair, top, bottom), times, numbers, numbers),
    ideal=st.booleans(),
    host=st.text(st.characters(categories=("L", "N", "P", "S")), max_size=60),
    family=st.none() | st.sampled_from(Family),
    a=st.text(st.characters(categories=("L", "N", "P", "S")), max_size=60),
    b=st.text(st.characters(categories=("L", "N", "P", "S")), max_size=60),
)


@given(states)
def test_an_address_restores_its_view_exactly(state: ViewState) -> None:
    assert parse_search(state.search()) == (state, ())


@given(st.text(max_size=300))
def test_no_address_is_too_strange(search: str) -> None:
    parse_search("?" + search)


@given(
    st.dictionaries(
        st.sampled_from(["view", "stage", "steps", "rank", "span", "time", "group", "zoom", "pins", "area"]), st.text()
    )
)
def test_what_is_not_understood_takes_its_default_with_a_note(given_fields: dict[str, str]) -> None:
    search = "&".join(f"{name}={value}" for name, value in given_fields.items())
    state, notes = parse_search("?" + search)
    assert isinstance(state, ViewState)
    assert all("in the address is not valid; the default is shown" in note for note in notes)


@pytest.mark.parametrize(
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
        "area=1-2-3",
        "area=1-2-3-4-5",
        "area=2-1-3-4",
        "area=1-2-3-99999999999",
    ],
)
def test_a_wrong_field_is_named_in_a_note(text: str) -> None:
    state, notes = parse_search(f"?run=a&{text}")
    assert state == ViewState(view=View.OVERVIEW, run="a")
    assert notes[0].startswith(text.split("=")[0] + "=")


def test_an_open_range_follows_a_live_run() -> None:
    state = parse_search("?run=a&view=heatmap&steps=100-").state
    assert state.steps == StepRange(100, LARGEST)
    assert "steps=100-" in state.search()


def test_no_address_shows_the_list_of_runs() -> None:
    assert parse_search(None).state.view is View.RUNS
    assert parse_search("?run=a").state.view is View.OVERVIEW
