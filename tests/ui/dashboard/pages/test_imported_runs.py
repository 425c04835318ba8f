"""Every part of every page is drawn for runs that other tools recorded, whatever their files lack."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.imports.interface import ImportOptions
from telemetry.imports.nccl_inspector import import_nccl_inspector
from telemetry.imports.nsys import import_nsys
from telemetry.imports.torchtitan import import_torchtitan
from telemetry.imports.write import StoreTarget, put_run
from telemetry.stores.interface import StoreReader
from tests.memory_store import memory_store
from tests.telemetry.made_formats import known_run, write_nccl_inspector, write_nsys, write_torchtitan
from ui.dashboard.data import Reads
from ui.dashboard.pages import PAGES
from ui.dashboard.serving.drawing import draw_canvas, draw_chart, draw_region
from ui.dashboard.view_state import View, ViewState


@pytest.fixture(scope="module")
def reads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reads]:
    """A run without compute, one without steps, and one of a GPU."""
    folder = tmp_path_factory.mktemp("imported")
    write_torchtitan(folder / "titan", known_run(slow_load=10.0))
    write_nccl_inspector(folder / "nccl", known_run())
    write_nsys(folder / "nsys", known_run(slow=1.5))
    with memory_store() as store:
        for run in (
            import_torchtitan([Path(folder / "titan" / "structured_logs")], ImportOptions(name="titan")),
            import_nccl_inspector([folder / "nccl"], ImportOptions(name="nccl")),
            import_nsys([folder / "nsys"], ImportOptions(name="nsys")),
        ):
            put_run(run, StoreTarget(store))
        yield Reads(StoreReader(store))


@pytest.mark.parametrize("run", ["titan", "nccl", "nsys"])
@pytest.mark.parametrize("view", list(View))
def test_every_part_of_a_page_is_drawn_for_an_imported_run(view: View, run: str, reads: Reads) -> None:
    state = ViewState(view=view, run=run)
    for name in PAGES[view].regions:
        drawn = draw_region(name, state, reads, by_clock=False)
        assert drawn is not None
        assert "could not be drawn" not in json.dumps(drawn.make(), ensure_ascii=False)
    assert all(draw_chart(name, state, reads, None) is not None for name in PAGES[view].charts)
    assert all(draw_canvas(name, state, reads, None) is not None for name in PAGES[view].canvases)
