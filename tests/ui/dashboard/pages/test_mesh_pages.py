"""Pages of runs on meshes of other axes than dp, pp and tp."""

import re
from collections.abc import Iterator

import pytest

from diagnose.alerts.alert import Phase
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import HostClocks
from telemetry.topology import Topology
from tests.memory_store import memory_store
from tests.ui.mesh_runs import SLOWED, leave_evidence, put, report_runs, simulated
from tests.ui.simulated_run import store_simulated
from tests.ui.words_of_pages import said
from ui.dashboard.data import Reads
from ui.dashboard.data.alerts import reported_alerts
from ui.dashboard.data.cache import BackgroundAnswers
from ui.dashboard.view_state import View, ViewState

RUN = "experts"
STUCK = "context-stuck"


@pytest.fixture(scope="module")
def reads() -> Iterator[Reads]:
    """dp=2,ep=4 with the slow rank 5. pp=1,dp=2,cp=2,tp=2 in which rank 5 hangs."""
    with memory_store() as store:
        topology = Topology.parse("dp=2,ep=4")
        store_simulated(store, RUN, "slow:rank=5,factor=1.5", num_steps=10, topology=topology, experts=True)
        put(store, stuck := simulated(STUCK, "context", SLOWED, num_steps=10))
        leave_evidence(store, stuck)
        reads = Reads(StoreReader(store))
        reads.background = BackgroundAnswers(4, wait_s=60.0)
        yield reads


def test_grid_names_and_links_only_the_groups_of_the_mesh(reads: Reads) -> None:
    words = said("grid-rank", reads, rank=5, view=View.GRID, run=RUN)
    assert "Timeline with its replicas · expert group · neighbours" in words
    assert "replicas (dp x ep) 6 of 8" in words
    assert "data group (dp) 2 of 2" in words
    assert "expert group (ep) 2 of 4" in words
    assert "tensor" not in words
    assert "pipeline" not in words


def test_what_if_names_the_slow_worker_and_no_pipeline_stage(reads: Reads) -> None:
    words = said("whatif-says", reads, view=View.WHATIF, run=RUN)
    assert "The slowest worker, dp1 ep1, causes most of the slowdown: check its ranks" in words
    assert "Pipeline stage" not in words
    assert "M_S" not in said("whatif-cards", reads, view=View.WHATIF, run=RUN)


def test_overview_names_the_axes_of_the_mesh_that_communication_is_exposed_along(reads: Reads) -> None:
    words = said("numbers", reads, view=View.OVERVIEW, run=RUN)
    assert re.search(r"axes can overlap\): dp x ep [\d.]+%, ep [\d.]+%", words), words


def test_the_list_of_runs_names_the_axes_of_a_mesh_and_the_time_of_the_last_data(reads: Reads) -> None:
    words = said("runs", reads, view=View.RUNS, run="")
    assert "dp 2 x ep 4" in words
    assert "Started Last data" in words


def test_hang_page_names_every_member_of_a_group_and_each_operation_once(reads: Reads) -> None:
    words = said("rank", reads, rank=7, run=STUCK)
    assert "dp x cp [1, 3, 5, 7] 1 operation behind 80 80 81" in words
    assert "oldest first cp-all-gather #81 of cp [5, 7], for 39 s, 4096 bytes Stack" in words


def test_hang_page_lists_each_rank_at_which_a_waiting_chain_begins(reads: Reads) -> None:
    assert said("chain", reads, run=STUCK).endswith("begin at: ⋯ rank 0 ⋯ rank 2 ⋯ rank 4 ⋯ rank 6")


def test_mesh_runs_are_shown_at_their_end_with_an_open_alert_and_the_newest_clock_estimate() -> None:
    with memory_store() as store:
        put(store, simulated("titan", "titan", SLOWED, num_steps=12), every_steps=4)
        now_ns = report_runs(store, ["titan"])
        reads = Reads(StoreReader(store), wall_s=lambda: now_ns / 1e9)
        (reported,) = reported_alerts(reads).alerts
        clocks = StoreReader(store).read(HostClocks(run_id="titan", attempt=0)).to_pylist()
        facts = reads.facts(ViewState(run="titan"))
    assert reported.alert.phase is Phase.FIRING
    assert facts.summary.started_ns < reported.alert.began_ns
    assert [(row["host"], row["last_step"]) for row in clocks] == [("gpu-000", 11), ("gpu-001", 11)]
    assert all(facts.summary.started_ns < row["estimated_ns"] < now_ns for row in clocks)
