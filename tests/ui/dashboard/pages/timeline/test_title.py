"""The notes below the heading of the timeline."""

import json
from dataclasses import replace

import pytest

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.each_case import each_case
from tests.ui.made_fleet import tell_of_clocks
from tests.ui.synthetic_run import SyntheticRun
from tests.ui.words_of_pages import said, texts
from ui.dashboard.address import parse_search
from ui.dashboard.components import written
from ui.dashboard.data import Reads
from ui.dashboard.pages.timeline.step_controls import control_values, draw_controls
from ui.dashboard.pages.timeline.title import draw_title
from ui.dashboard.view_state import Group, View, ViewState

STATE = ViewState(view=View.TIMELINE, run="made", group=Group.ALL, rank=5, step=20)
WARNING = "left-out"


def title(state: ViewState, reads: Reads) -> str:
    return json.dumps(written(draw_title(state, reads)), ensure_ascii=False)


def test_note_about_clocks_is_a_warning_only_if_a_clock_is_not_aligned(store: EmbeddedStore, reads: Reads) -> None:
    aligned = title(replace(STATE, group=Group.DP), reads)
    assert "Clocks of 2 hosts aligned within ±10 µs." in aligned
    assert WARNING not in aligned
    apart = SyntheticRun(run_id="apart")
    apart.introduce(store)
    apart.advance(store, 30)
    tell_of_clocks(store, apart, 30)
    refused = title(replace(STATE, run="apart"), Reads(StoreReader(store)))
    assert "Clock of gpu-04 not aligned" in refused
    assert WARNING in refused


@pytest.mark.parametrize(("group", "name"), [("cp", "context"), ("ep", "expert")])
def test_group_that_the_run_does_not_have_is_named_and_the_default_is_shown(
    reads: Reads, group: str, name: str
) -> None:
    state = parse_search(f"?view=timeline&run=made&group={group}&rank=5&step=20").state
    words = " ".join(texts(written(draw_title(state, reads))))
    assert f"group={group} in the address is not valid: this run has no {name} group. The default is shown." in words
    assert "pipeline group of rank 5" in words
    assert control_values(state, reads)["group"] == "pp"


def test_replicas_have_the_name_of_the_grid_page(reads: Reads) -> None:
    state = replace(STATE, group=Group.DP)
    assert "Step 20, replicas of rank 5" in title(state, reads)
    assert '"Replicas"' in json.dumps(written(draw_controls(state, reads)))
    assert "replicas (dp)" in " ".join(said("grid-rank", reads, rank=5, view=View.GRID).split())


@each_case("group", [None, Group.PP, Group.TP, Group.ALL])
def test_group_of_the_run_needs_no_note(reads: Reads, group: Group | None) -> None:
    assert "is not valid" not in title(replace(STATE, group=group), reads)
