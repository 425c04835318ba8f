"""Texts of the timeline about gathers of parameters: inside compute spans (FSDP), and between them."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from telemetry.stages import Stage
from telemetry.stores.interface import StoreReader
from telemetry.topology import Topology
from tests.memory_store import memory_store
from tests.ui.simulated_run import store_simulated
from tests.ui.words_of_pages import texts
from ui.dashboard.components import written
from ui.dashboard.data import Reads
from ui.dashboard.pages.timeline.page import PAGE
from ui.dashboard.pages.timeline.selection import selection, spans
from ui.dashboard.view_state import Group, SpanKey, View, ViewState

SHARDED, WHOLE = (ViewState(view=View.TIMELINE, run=run, group=Group.ALL, rank=1) for run in ("sharded", "whole"))


@pytest.fixture(scope="module")
def reads() -> Iterator[Reads]:
    """Rank 1 is slow. ``sharded`` gathers parameters inside its compute spans, ``whole`` before them."""
    with memory_store() as store:
        for run in ("sharded", "whole"):
            fault, topology = "slow:rank=1,factor=1.4", Topology(dp=4)
            store_simulated(store, run, fault, num_steps=3, topology=topology, fsdp=run == "sharded")
        yield Reads(StoreReader(store))


def details(state: ViewState, reads: Reads) -> str:
    return " ".join(texts(written(PAGE.regions["details"].draw(state, reads))))


def of_gather(state: ViewState, reads: Reads) -> str:
    """The details of the second gather of rank 1, or of its only one."""
    loaded = spans(selection(state, reads), reads)
    row = np.flatnonzero((loaded.rank == 1) & (loaded.stage == Stage.PARAMS_ALL_GATHER))[:2][-1]
    return details(replace(state, span=SpanKey(1, int(loaded.seq[row]))), reads)


def test_details_of_a_gather_name_waiting_only_if_it_does_not_run_during_compute(reads: Reads) -> None:
    sharded, whole = of_gather(SHARDED, reads), of_gather(WHOLE, reads)
    assert "params-all-gather runs during compute, so its duration is not waiting time" in sharded
    assert "compare the compute time of forward-compute" in sharded
    assert "waited for it" not in sharded
    assert "including waiting" not in sharded
    assert "the others waited for it" in whole
    assert "during compute" not in whole


def test_waiting_for_parameters_in_compute_is_named_only_in_a_run_that_gathers_there(reads: Reads) -> None:
    named = "This includes waiting for parameters in compute spans."
    assert [named in details(state, reads) for state in (SHARDED, WHOLE)] == [True, False]
