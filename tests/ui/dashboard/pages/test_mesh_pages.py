"""Pages of a run whose mesh has no pipeline and no tensor parallelism, but experts: dp=2, ep=4."""

from collections.abc import Iterator

import pytest

from telemetry.stores.interface import StoreReader
from telemetry.topology import Topology
from tests.memory_store import memory_store
from tests.ui.simulated_run import store_simulated
from tests.ui.words_of_pages import said
from ui.dashboard.data import Reads
from ui.dashboard.data.cache import BackgroundAnswers
from ui.dashboard.view_state import View

RUN = "experts"


@pytest.fixture(scope="module")
def reads() -> Iterator[Reads]:
    """Rank 5 is slow."""
    with memory_store() as store:
        topology = Topology.parse("dp=2,ep=4")
        store_simulated(store, RUN, "slow:rank=5,factor=1.5", num_steps=10, topology=topology, experts=True)
        reads = Reads(StoreReader(store))
        reads.background = BackgroundAnswers(4, wait_s=60.0)
        yield reads


def test_the_grid_names_and_links_the_groups_of_the_mesh_alone(reads: Reads) -> None:
    words = said("grid-rank", reads, rank=5, view=View.GRID, run=RUN)
    assert "Timeline with its replicas · expert group · neighbours" in words
    assert "replicas (dp x ep) 6 of 8" in words
    assert "ep 2 of 4" in words
    assert "tensor" not in words
    assert "pipeline" not in words


def test_what_if_names_the_slow_worker_and_no_pipeline_stage(reads: Reads) -> None:
    words = said("whatif-says", reads, view=View.WHATIF, run=RUN)
    assert "The slowest is dp1 ep1: check" in words
    assert "Pipeline stage" not in words
    assert "M_S" not in said("whatif-cards", reads, view=View.WHATIF, run=RUN)


def test_the_list_of_runs_names_the_axes_of_a_mesh(reads: Reads) -> None:
    assert "dp 2 x ep 4" in said("runs", reads, view=View.RUNS, run="")
