"""A rank has one compute time: the heat map and the shares of the timeline agree, also if parameters are gathered."""

from collections.abc import Iterator
from dataclasses import fields

import numpy as np
import pytest

from telemetry.stages import Stage, StageClass
from telemetry.stores.interface import Reader, StoreReader
from telemetry.stores.queries import OperationColumns
from tests.memory_store import memory_store
from tests.ui.counting import Counting
from tests.ui.mesh_runs import SLOW, SLOWED, put, simulated
from tests.ui.remembering import Remembering
from ui.dashboard.data import Reads
from ui.dashboard.data.exposed_times import exposed_ns
from ui.dashboard.data.settings import ReadSettings
from ui.dashboard.data.stage_times import stage_times
from ui.dashboard.pages.timeline.row_order import ordered_ranks, shares_of_step
from ui.dashboard.pages.timeline.selection import selection
from ui.dashboard.pages.timeline.step_shares import StepShares
from ui.dashboard.timeline_view import RankOrder
from ui.dashboard.view_state import Clock, Group, StepRange, View, ViewState

STEP = 20
LARGE = ReadSettings(rank_steps_at_once=0)
"""No page waits for the view of the detectors, as for a large run."""
PARTS = [field.name for field in fields(StepShares) if field.name.endswith("_ns") and field.name != "step_ns"]


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    """Two runs that gather parameters inside compute spans, and one that gathers them at the begin of its steps."""
    with memory_store() as store:
        for mesh in ("titan", "context"):
            put(store, simulated(mesh, mesh, SLOWED))
        put(store, simulated("plain", "titan", SLOWED, fsdp=False))
        yield Remembering(StoreReader(store))


def shares(reads: Reads, run: str, group: Group = Group.ALL) -> dict[int, StepShares]:
    state = ViewState(view=View.TIMELINE, run=run, group=group, rank=SLOW, step=STEP)
    return {share.rank: share for share in shares_of_step(selection(state, reads), reads)}


def heat_map_ns(reads: Reads, run: str) -> list[float]:
    """The sum over all compute stages of the compute time on the heat map, by rank."""
    facts = reads.facts(ViewState(run=run))
    stages = [stage for stage in facts.stages if stage.stage_class is StageClass.COMPUTE]
    times = [stage_times(reads, facts, stage, Clock.OWN, StepRange(STEP, STEP)).ns[0] for stage in stages]
    return np.sum(times, axis=0).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("settings", [ReadSettings(), LARGE], ids=["small", "large"])
@pytest.mark.parametrize("run", ["titan", "context", "plain"])
def test_compute_share_of_ranks_is_the_compute_time_of_the_heat_map(
    reader: Reader, run: str, settings: ReadSettings
) -> None:
    reads = Reads(reader, settings=settings)
    found = shares(reads, run)
    compute_ns = [found[rank].compute_ns for rank in range(8)]
    assert compute_ns == pytest.approx(heat_map_ns(reads, run), rel=1e-5)  # the timeline corrects the rate of clocks
    assert np.argmax(compute_ns) == SLOW
    assert max(compute_ns) > 1.3 * sorted(compute_ns)[-2]
    for share in found.values():
        assert sum(getattr(share, name) for name in PARTS) == share.step_ns
        assert min(getattr(share, name) for name in PARTS) >= 0
    by_compute = ordered_ranks(
        RankOrder.COMPUTE, selection(ViewState(run=run, group=Group.ALL, step=STEP), reads), reads
    )
    assert by_compute == tuple(sorted(range(8), key=lambda rank: -compute_ns[rank]))


def test_waiting_for_parameters_inside_compute_is_exposed_data_parallel_time(reader: Reader) -> None:
    """Exposed communication also contains the time in which a collective of tp or cp runs at the same time."""
    reads = Reads(reader)
    found = shares(reads, "context")
    assert found[SLOW].data_ns < 0.05 * found[SLOW].step_ns
    assert all(found[rank].data_ns > 0.2 * found[rank].step_ns for rank in range(4))
    facts = reads.facts(ViewState(run="context"))
    exposed = exposed_ns(reads, facts, Stage.PARAMS_ALL_GATHER, np.array([STEP]))[0]
    for rank, share in found.items():
        at_most = share.data_ns + share.tensor_ns + share.context_ns
        assert share.data_ns - 100 <= exposed[rank] <= at_most + 100


def test_shares_of_a_group_load_only_the_operations_of_its_pipeline_stage(reader: Reader) -> None:
    counting = Counting(reader)
    of_group = shares(Reads(counting, settings=LARGE), "titan", Group.TP)
    assert of_group == {rank: share for rank, share in shares(Reads(reader), "titan").items() if rank in (4, 5)}
    loads = [query for query in counting.queries if isinstance(query, OperationColumns)]
    assert loads
    assert {(query.ranks, query.first_step, query.last_step) for query in loads} == {((4, 5, 6, 7), STEP, STEP)}


def test_shares_of_a_job_that_gathers_outside_of_compute_load_only_the_operations_of_the_shown_ranks(
    reader: Reader,
) -> None:
    counting = Counting(reader)
    assert {*shares(Reads(counting, settings=LARGE), "plain", Group.TP)} == {4, 5}
    loads = [query for query in counting.queries if isinstance(query, OperationColumns)]
    assert {query.ranks for query in loads} == {(4, 5)}


def test_shares_of_too_many_operations_contain_the_waiting_and_load_none(reader: Reader) -> None:
    counting = Counting(reader)
    found = shares(Reads(counting, settings=ReadSettings(rank_steps_at_once=0, max_own_operations=100)), "context")
    assert "OperationColumns" not in counting.asked
    assert {share.basis for share in found.values()} == {None}
    assert found[0].compute_ns > 0.8 * found[0].step_ns


@pytest.mark.parametrize("settings", [ReadSettings(), LARGE], ids=["small", "large"])
def test_compute_share_of_cpu_ranks_is_the_processor_time_of_the_heat_map(reads: Reads, settings: ReadSettings) -> None:
    of_cpu = Reads(reads.reader_of(reads.facts(ViewState(run="made")).summary), settings=settings)
    found = shares(of_cpu, "made")
    assert [found[rank].compute_ns for rank in range(8)] == pytest.approx(heat_map_ns(of_cpu, "made"), abs=100)
    assert max(found.values(), key=lambda share: share.compute_ns).rank == SLOW
