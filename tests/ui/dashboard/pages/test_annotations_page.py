"""Tags, notes and saved views on the pages. Text of people is shown as text."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.memory_store import memory_store
from tests.telemetry.made_rows import insert, made
from tests.ui.made_annotations import annotate
from tests.ui.synthetic_run import SyntheticRun
from tests.ui.words_of_pages import leads_to
from ui.dashboard.address import parse_search
from ui.dashboard.components import written
from ui.dashboard.data import Reads
from ui.dashboard.data.annotations import AGE_S
from ui.dashboard.data.settings import ReadSettings
from ui.dashboard.pages.controls import after_controls
from ui.dashboard.pages.saved_views import draw_views, opened
from ui.dashboard.serving.drawing import draw_region
from ui.dashboard.serving.live import freshness
from ui.dashboard.view_state import SpanKey, StepRange, View, ViewState

OVERVIEW = ViewState(view=View.OVERVIEW, run="gpt")


@pytest.fixture(scope="module")
def filled() -> Iterator[EmbeddedStore]:
    with memory_store() as store:
        for name in ("gpt", "other"):
            run = SyntheticRun(run_id=name)
            run.introduce(store)
            run.advance(store, 3)
        annotate(store, "tag", "gpt", name="driver-560")
        annotate(store, "tag", "gpt", name="baseline")
        annotate(store, "tag", "gpt", name="old")
        annotate(store, "tag", "gpt", name="old", edit="remove")
        for number, text in enumerate(("first note", "<b>second</b> note")):
            annotate(store, "note", "gpt", text=text, at_ns=10**18 + number, who="<i>Ada</i>")
        yield store


def drawn(store: EmbeddedStore, region: str, state: ViewState, *, takes_actions: bool = True) -> str:
    reads = Reads(StoreReader(store), settings=ReadSettings(takes_actions=takes_actions))
    return text_of(region, state, reads)


def text_of(region: str, state: ViewState, reads: Reads) -> str:
    drawn = draw_region(region, state, reads, by_clock=False)
    assert drawn is not None
    return json.dumps(drawn.make(), ensure_ascii=False)


def test_list_of_runs_and_overview_show_the_tags_that_a_run_has_now(filled: EmbeddedStore) -> None:
    for shown in (drawn(filled, "runs", ViewState()), drawn(filled, "tags", OVERVIEW)):
        assert shown.index("tag=baseline") < shown.index("tag=driver-560")
        assert "tag=old" not in shown
        assert '\\"tags\\": [\\"baseline\\", \\"driver-560\\"]' in shown


def test_server_that_accepts_no_actions_shows_tags_without_a_button(filled: EmbeddedStore) -> None:
    assert "data-tags" not in drawn(filled, "runs", ViewState(), takes_actions=False)
    assert "tag=baseline" in drawn(filled, "tags", OVERVIEW, takes_actions=False)
    assert drawn(filled, "tags", ViewState(view=View.OVERVIEW, run="other"), takes_actions=False) == "null"


def test_overview_lists_notes_as_text_with_names_the_newest_first(filled: EmbeddedStore) -> None:
    notes = drawn(filled, "run-notes", OVERVIEW)
    assert notes.index("<b>second</b> note") < notes.index("first note")
    assert notes.count("<i>Ada</i>, 2001-09-09") == 2
    assert "dangerously" not in notes
    assert drawn(filled, "run-notes", ViewState(view=View.OVERVIEW, run="other")) == "null"
    assert '"data-note": "other"' in drawn(filled, "tags", ViewState(view=View.OVERVIEW, run="other"))


def test_only_the_newest_notes_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ui.dashboard.pages.annotations.MOST_NOTES", 2)
    with memory_store() as store:
        insert(store, "ranks", made("ranks", [{"started_ns": 5}]), run_id="gpt")
        for number in range(3):
            annotate(store, "note", "gpt", text=f"note {number}.", at_ns=number)
        notes = drawn(store, "run-notes", OVERVIEW)
        assert "note 2." in notes
        assert "note 1." in notes
        assert "note 0." not in notes
        assert "Older notes are not listed" in notes


def test_tag_in_the_address_selects_runs_and_a_control_sets_it(filled: EmbeddedStore) -> None:
    state = after_controls(parse_search("?view=runs").state, {"tag": "baseline"})
    assert state.search() == "?view=runs&tag=baseline"
    assert "1 found" in drawn(filled, "runs", state)
    assert "run=other" not in drawn(filled, "runs", state)
    assert "No run has the tag gone" in drawn(filled, "runs", ViewState(tag="gone"))
    assert json.loads(drawn(filled, "runs-tag", ViewState(tag="gone")))["props"]["data"] == [
        "baseline",
        "driver-560",
        "gone",
    ]
    assert after_controls(state, {"tag": "<b> x"}) == state
    assert after_controls(state, {"tag": None}) == ViewState()
    assert parse_search("?view=runs&tag=<b>").state.tag == ""


def links_of_menu(state: ViewState, reads: Reads) -> list[ViewState]:
    return leads_to(written(draw_views(state, reads)))


def test_menu_opens_views_of_the_run_and_applies_views_of_all_runs_to_the_run_that_is_open(
    filled: EmbeddedStore,
) -> None:
    of_run = ViewState(view=View.TIMELINE, run="gpt", attempt=0, rank=5, step=2, span=SpanKey(5, 7))
    annotate(filled, "view", "gpt", name="rank 5", text=of_run.search())
    steps = ViewState(view=View.HEAT_MAP, steps=StepRange(1, 2), rank=3, span=SpanKey(5, 7))
    annotate(filled, "view", "", name="<b>slow</b>", text=steps.search())
    annotate(filled, "view", "", name="baselines", text=ViewState(tag="baseline").search())
    reads = Reads(StoreReader(filled), settings=ReadSettings(takes_actions=True))
    slow = replace(steps, span=None)
    assert links_of_menu(OVERVIEW, reads) == [of_run, replace(slow, run="gpt"), ViewState(tag="baseline", run="gpt")]
    other = ViewState(view=View.GRID, run="other", attempt=0, rank=1)
    here = {"run": "other", "attempt": 0}
    assert links_of_menu(other, reads) == [replace(slow, **here), ViewState(tag="baseline", **here)]
    assert links_of_menu(ViewState(), reads) == [slow, ViewState(tag="baseline")]
    menu = json.dumps(written(draw_views(OVERVIEW, reads)))
    assert '"<b>slow</b>"' in menu
    assert "dangerously" not in menu
    reader_only = Reads(StoreReader(filled))
    assert "data-save-view" not in json.dumps(written(draw_views(OVERVIEW, reader_only)))
    annotate(filled, "view", "gpt", name="rank 5", edit="remove")
    assert of_run not in links_of_menu(OVERVIEW, Reads(StoreReader(filled)))


def test_saved_address_with_other_fields_opens_only_what_an_address_can_hold(filled: EmbeddedStore) -> None:
    for text in ("?view=//evil.example", "?run=other&view=grid&x=javascript%3Aalert", "?rank=-1"):
        view = opened(text, ViewState(run="gpt"), of_run=True)
        assert view.search().startswith("?view=")
        assert view.run == "gpt"
        assert "evil" not in view.search()
        assert "alert" not in view.search()


def test_page_with_the_newest_freshness_shows_the_newest_tag() -> None:
    """Otherwise the page would show the older state until something else changes."""
    with memory_store() as store:
        run = SyntheticRun(run_id="gpt")
        run.introduce(store)
        run.advance(store, 3)
        now_s = run.now_ns / 1e9 - run.now_ns / 1e9 % AGE_S
        clock_s = [now_s - AGE_S / 4]
        reads = Reads(StoreReader(store), wall_s=lambda: clock_s[0])
        before = freshness(OVERVIEW, reads)
        clock_s[0] = now_s  # answers of the freshness are too old now
        assert "baseline" not in text_of("tags", OVERVIEW, reads)
        annotate(store, "tag", "gpt", name="baseline")
        for ages in (0.2, 0.9, 1.1):
            clock_s[0] = now_s + ages * AGE_S
            is_new = freshness(OVERVIEW, reads) != before
            assert is_new or ages < 1
            assert "baseline" in text_of("tags", OVERVIEW, reads) or not is_new
