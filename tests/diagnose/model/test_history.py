"""How many steps of a long run are loaded for the detectors."""

import pytest

from diagnose.findings import StepWindow
from diagnose.model import chosen_steps
from diagnose.model.load import load_view
from telemetry.stores.interface import StoreReader
from telemetry.topology import Topology
from tests.benchmarks.many_runs import MadeRuns
from tests.memory_store import memory_store


def test_load_view_loads_the_history_before_a_window_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_steps, "HISTORY_STEPS", 1_000)
    with memory_store() as store:
        MadeRuns(names=("long",), topology=Topology(), num_steps=3_000).store(store)
        newest = load_view(StoreReader(store), "long", 0)
        earlier = load_view(StoreReader(store), "long", 0, StepWindow(first_step=1_400, last_step=1_499))
    for view, last in ((newest, 2_999), (earlier, 1_499)):
        assert (view.history.steps[0], view.history.steps[-1], len(view.history.steps)) == (last - 999, last, 1_000)
        assert (view.samples["loss"].steps[0], view.samples["loss"].steps[-1]) == (last - 999, min(last + 1, 2_999))
