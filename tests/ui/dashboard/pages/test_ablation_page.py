"""The ablation page: the table of the ablation that a run belongs to."""

from collections.abc import Iterator

import pytest

from telemetry.stores.interface import StoreReader
from tests.memory_store import memory_store
from tests.ui.ablation_runs import labels, put_run
from tests.ui.words_of_pages import said
from ui.dashboard.data import Reads
from ui.dashboard.serving.drawing import draw_chart
from ui.dashboard.view_state import View, ViewState


@pytest.fixture(scope="module")
def reads() -> Iterator[Reads]:
    with memory_store() as store:
        put_run(store, "plain", {})
        put_run(store, "abl.00.0", labels(0, "baseline"), "slow:rank=5,factor=2")
        put_run(store, "abl.01.0", labels(1, "sliding window"))
        yield Reads(StoreReader(store))


def test_each_technique_has_a_row_and_each_run_a_link(reads: Reads) -> None:
    table = said("ablation-table", reads, view=View.ABLATION, run="abl.01.0")
    assert "Ablation abl" in table
    assert "baseline" in table
    assert "+ sliding window" in table
    assert "1.00x" in table
    options = said("ablation-options", reads, view=View.ABLATION, run="abl.00.0")
    assert "--row 1" in options
    assert "abl.00.0" in options


def test_bars_of_a_row_add_up_to_its_step_time(reads: Reads) -> None:
    plotted = draw_chart("ablation-steps", ViewState(view=View.ABLATION, run="abl.00.0"), reads, None)
    assert plotted is not None
    names = [bars["name"] for bars in plotted.figure["data"]]
    assert names == ["the rest of the step", "exposed dp", "exposed pp", "exposed tp"]
    slow, fast = (sum(bars["x"][row] for bars in plotted.figure["data"]) for row in (0, 1))
    assert slow > fast > 0


def test_page_of_a_run_without_an_ablation_explains_how_to_make_one(reads: Reads) -> None:
    assert "rankscope ablate" in said("ablation-table", reads, view=View.ABLATION, run="plain")
    plotted = draw_chart("ablation-steps", ViewState(view=View.ABLATION, run="plain"), reads, None)
    assert plotted is not None
    assert plotted.panel == "panel hidden"
