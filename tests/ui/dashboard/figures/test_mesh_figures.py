"""Figures of meshes with other axes and orders: positions of ranks, and names of axes."""

import re
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from diagnose.simulate.noise import SILENT
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.role_names import parse_roles
from diagnose.simulate.run import simulate
from diagnose.simulate.truth import parse_fault
from telemetry.errors import UsageError
from telemetry.group_names import peer_of_axes, peer_of_mask
from telemetry.stages import Stage
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import HeatCells
from telemetry.topology import Topology
from tests.each_case import each_case
from tests.memory_store import memory_store
from tests.ui.mesh_runs import put
from tests.ui.simulated_run import store_simulated
from ui.dashboard.data import Reads
from ui.dashboard.data.compared_ranks import Compared, compared_in, group_of_rank
from ui.dashboard.data.settings import ReadSettings
from ui.dashboard.data.stage_times import pooled_times, stage_times
from ui.dashboard.defaults import chosen_stage, group_members, groups_of
from ui.dashboard.figures.grid import rank_grid
from ui.dashboard.figures.grid_colours import by_standing
from ui.dashboard.figures.hang import Standing
from ui.dashboard.pages.grid.body import rank_body
from ui.dashboard.pages.heat_map.picture import has_values
from ui.dashboard.pages.heat_map.says import draw_says
from ui.dashboard.pages.timeline.ideal_strip import LANES, lane_of
from ui.dashboard.tools.parameters import HeatMapParameters
from ui.dashboard.tools.pictures import heat_map
from ui.dashboard.view_state import Clock, Group, Metric, StepRange, ViewState
from ui.dashboard.wording import degrees, worker_name

TITAN = Topology.parse("pp=2,dp_shard=2,cp=2,tp=2")
HOSTS = ("gpu-01",) * TITAN.world_size
CELLS = by_standing([Standing.UNKNOWN] * TITAN.world_size)


def test_grid_has_each_rank_in_the_row_and_block_of_its_coordinates() -> None:
    figure = rank_grid(TITAN, CELLS, HOSTS, chosen=None, path=(), keep="")
    drawn = np.asarray(figure.data[0].customdata)[:, :, 0]
    assert drawn[:, [0, 1, 3, 4]].tolist() == [[0, 1, 8, 9], [2, 3, 10, 11], [4, 5, 12, 13], [6, 7, 14, 15]]
    assert list(figure.layout.yaxis.ticktext)[1] == "dp_shard0 cp1"
    assert "pp1 dp_shard0 cp0 tp1" in figure.data[0].text[0][4]


def test_3d_grid_has_the_axis_names_of_the_mesh() -> None:
    figure = rank_body(TITAN, CELLS, HOSTS, chosen=3, path=(), keep="")
    assert list(figure.layout.scene.yaxis.ticktext) == [
        "dp_shard0 cp0",
        "dp_shard0 cp1",
        "dp_shard1 cp0",
        "dp_shard1 cp1",
    ]
    assert degrees(TITAN) == "pp 2 x dp_shard 2 x cp 2 x tp 2"


def test_axes_that_a_mesh_lacks_have_no_labels() -> None:
    experts, hosts = Topology.parse("dp=2,ep=4"), ("gpu-01",) * 8
    cells = by_standing([Standing.UNKNOWN] * 8)
    slices = rank_grid(experts, cells, hosts, chosen=None, path=(), keep="").layout
    assert list(slices.xaxis.ticktext) == []
    assert not [text.text for text in slices.annotations if text.text.startswith("pp")]
    scene = rank_body(experts, cells, hosts, chosen=5, path=(), keep="").layout.scene
    axes = (scene.xaxis, scene.yaxis, scene.zaxis)
    assert [axis.ticktext for axis in axes] == [("",), tuple(map(experts.replica, range(8))), ("",)]
    assert [len(axis.tickvals) for axis in axes] == [1, 8, 1], "a number is drawn at a tick without a text"
    assert not any(axis.title.text for axis in axes), "a title is drawn over the labels of its axis"


@pytest.mark.parametrize(
    ("mesh", "dash", "rows", "name"),
    [
        ("dp=2,ep=4", "8px,2px,2px,2px,2px,2px", [(4, 7)], "expert group of rank 5"),
        ("dp=2,cp=2,tp=2", "dashdot", [(2, 3)], "context group of rank 5"),
        ("cp=2,dp=2,tp=2", "dashdot", [(0, 0), (2, 2)], "context group of rank 5"),
    ],
)
def test_both_forms_of_the_grid_show_the_context_or_expert_group_of_the_chosen_rank(
    mesh: str, dash: str, rows: list[tuple[int, int]], name: str
) -> None:
    topology, rank = Topology.parse(mesh), 5
    given = topology, by_standing([Standing.UNKNOWN] * 8), ("gpu-01",) * 8
    shapes = rank_grid(*given, chosen=rank, path=(), keep="", with_groups=True).layout.shapes
    assert [(round(each.y0), round(each.y1)) for each in shapes if each.line.dash == dash] == rows
    (line,) = rank_body(*given, chosen=rank, path=(), keep="").select_traces({"name": name})
    assert [*line.y] == [row for first, last in rows for row in range(first, last + 1)]
    assert line.x[0] != 0, "the line would hide the line of the replicas"


def test_the_waiting_chain_is_beside_all_lines_of_groups_and_its_cones_are_at_no_other_rank() -> None:
    """Rank 0 waits for rank 1, and rank 1 for rank 5, two places further along dp."""
    topology = Topology.parse("dp=2,cp=2,tp=2")
    given = topology, by_standing([Standing.UNKNOWN] * 8), ("gpu-01",) * 8
    figure = rank_body(*given, chosen=0, path=(0, 1, 5), keep="")
    lines = {
        trace.name: set(zip(trace.x, trace.y, trace.z, strict=True)) for trace in figure.select_traces("scatter3d")
    }
    chain = lines.pop("waiting chain from rank 0 to the root cause")
    assert len(chain) == 3
    assert not chain & set().union(*(points for name, points in lines.items() if name))
    (cone,) = figure.select_traces("cone")
    first, _, last = sorted(chain)
    assert [*zip(cone.x, cone.y, cone.z, strict=True)] == [
        pytest.approx((first[0], first[1], first[2] + 0.5)),
        pytest.approx((last[0], last[1] - 0.5, last[2])),
    ]


def test_numbers_in_the_3d_grid_are_drawn_over_marks_which_do_not_overlap_in_a_long_row() -> None:
    """Annotations are drawn over traces. Text of a trace would be hidden by marks, lines and cones."""
    figures = [
        rank_body(mesh, by_standing([Standing.UNKNOWN] * 8), ("gpu-01",) * 8, chosen=5, path=(1, 5), keep="")
        for mesh in (Topology.parse("dp=2,ep=4"), Topology.parse("dp=2,pp=2,tp=2"))
    ]
    for figure in figures:
        assert [note.text for note in figure.layout.scene.annotations] == [f"<b>{rank}</b>" for rank in range(8)]
        assert "text" not in {trace.mode for trace in figure.select_traces("scatter3d")}
    row, cube = (figure.data[0].marker.size for figure in figures)
    assert row < 0.6 * cube


def test_workers_are_named_in_the_order_of_the_mesh() -> None:
    named = {
        mesh: worker_name(Topology.parse(mesh), 1, 0) for mesh in ("pp=2,dp_shard=2,tp=2", "pp=1,dp=2", "dp=2,pp=2")
    }
    assert list(named.values()) == ["pp0 dp_shard1", "dp1", "dp1 pp0"]
    assert worker_name(Topology.parse("pp=4,tp=2"), 0, 3) == "pp3"
    assert worker_name(Topology(tp=8), 0, 0) == "dp0"


def test_timeline_groups_are_the_groups_of_the_mesh_with_several_ranks() -> None:
    experts, context = Topology.parse("dp=2,ep=4"), Topology.parse("pp=1,dp=2,cp=2,tp=2")
    assert groups_of(experts) == [Group.DP, Group.EP, Group.ALL]
    assert groups_of(context) == [Group.DP, Group.CP, Group.TP, Group.ALL]
    assert groups_of(Topology.parse("pp=2,cp=4")) == [Group.PP, Group.DP, Group.ALL]
    assert group_members(experts, 5, Group.EP) == (4, 5, 6, 7)
    assert group_members(context, 5, Group.CP) == (5, 7)


@each_case("topology", [TITAN, Topology.parse("tp=2,dp=4,pp=2"), Topology(dp=4, pp=2, tp=2)])
def test_peers_are_the_ranks_of_one_dp_group_or_one_tp_group(topology: Topology) -> None:
    for among, along in ((Compared(peers="dp_group"), "dp"), (Compared(peers="tp_group"), "tp")):
        number = group_of_rank(among, topology)
        groups = {tuple(np.flatnonzero(number == one).tolist()) for one in np.unique(number)}
        assert groups == {tuple(sorted(group)) for group in topology.groups(along=along)}


@pytest.mark.parametrize("peers", ["pipeline_rank", "dp_group", "tp_group"])
def test_store_compares_the_same_peers_when_it_pools_a_mesh(peers: str) -> None:
    """Eight ranks are read as a mesh whose slowest axis is tp. The ratio compares with the peers of that mesh."""
    topology = Topology.parse("tp=2,pp=2,dp=2")
    with memory_store() as store:
        store_simulated(store, "pooled", "slow:rank=5,factor=1.4", num_steps=5)
        rows = StoreReader(store).read(
            HeatCells(
                run_id="pooled",
                attempt=0,
                stage=3,
                first_step=0,
                last_step=4,
                num_ranks=8,
                max_rows=8,
                max_columns=1,
                pp=topology.pp,
                tp=topology.tp,
                pp_stride=topology.stride("pp"),
                tp_stride=topology.stride("tp"),
                peers=peers,  # type: ignore[arg-type]
            )
        )
    mean, ratio = rows["mean_ns"].to_numpy(), rows["ratio"].to_numpy()
    number = group_of_rank(Compared(peers=peers), topology)  # type: ignore[arg-type]
    expected = [mean[r] / np.median([mean[o] for o in range(8) if o != r and number[o] == number[r]]) for r in range(8)]
    assert ratio == pytest.approx(expected)


def test_wait_caused_is_compared_within_the_recorded_groups() -> None:
    """Gradients are reduced along dp_shard only: the ranks of another replica do not wait for this one."""
    topology = Topology.parse("dp_replicate=2,dp_shard=2")
    stage, steps = Stage.GRADS_REDUCE_SCATTER, StepRange(0, 4)
    slow = parse_fault("slow:rank=1,factor=1.4")
    made = simulate(SimulatedRun(name="sharded", topology=topology, num_steps=5, noise=SILENT, faults=(slow,)))
    reductions = made.operations[stage]
    along_shards = replace(reductions, peer=np.full_like(reductions.peer, peer_of_mask(topology.mask("dp_shard"))))
    with memory_store() as store:
        put(store, replace(made, operations={**made.operations, stage: along_shards}))
        small, large = Reads(StoreReader(store)), Reads(StoreReader(store), settings=ReadSettings(max_cells=1))
        facts = small.facts(ViewState(run="sharded"))
        times = stage_times(small, facts, stage, Clock.WALL, steps, Metric.WAIT)
        whole, pooled = (pooled_times(reads, facts, times, Metric.WAIT, steps) for reads in (small, large))
    assert times.ratio == pytest.approx(times.ns / times.ns[:, [1, 0, 3, 2]])
    assert pooled.ratio == pytest.approx(whole.ratio)


def test_wait_caused_in_an_expert_exchange_is_compared_within_the_group_along_ep() -> None:
    state = ViewState(run="experts", stage=Stage.EP_ALL_TO_ALL, metric=Metric.WAIT)
    with memory_store() as store:
        topology = Topology.parse("dp=2,ep=4")
        store_simulated(store, "experts", "slow:rank=5,factor=1.4", num_steps=5, topology=topology, experts=True)
        small, large = Reads(StoreReader(store)), Reads(StoreReader(store), settings=ReadSettings(max_cells=1))
        facts, steps = small.facts(state), StepRange(0, 4)
        assert chosen_stage(state, facts) is Stage.EP_ALL_TO_ALL
        times = stage_times(small, facts, state.stage, Clock.WALL, steps, Metric.WAIT)
        whole, pooled = (pooled_times(reads, facts, times, Metric.WAIT, steps) for reads in (small, large))
        said, of_compute = (str(draw_says(each, small)) for each in (state, ViewState(run="experts")))
    assert times.ratio[:, 5] == pytest.approx(times.ns[:, 5] / np.median(times.ns[:, [4, 6, 7]], axis=1))
    assert pooled.ratio == pytest.approx(whole.ratio)
    assert re.search(r"the other ranks of its expert group wait [\d.]+ ms a step for rank 5 \(host gpu-002", said)
    assert "it waits for another rank, in another group or pipeline stage" in said
    assert "It includes the time that follows from the number of tokens" in of_compute


def test_ranks_are_compared_within_their_role_and_named_with_it() -> None:
    roles = parse_roles("rollout=2,reward=3,actor=3")
    with memory_store() as store:
        store_simulated(store, "roles", "slow:rank=7,factor=1.4", num_steps=5, topology=Topology(dp=8), roles=roles)
        small, large = Reads(StoreReader(store)), Reads(StoreReader(store), settings=ReadSettings(max_cells=1))
        facts = small.facts(ViewState(run="roles"))
        times = stage_times(small, facts, Stage.FORWARD_COMPUTE, Clock.WALL, StepRange(0, 4))
        whole, pooled = (pooled_times(reads, facts, times, Metric.RATIO, StepRange(0, 4)) for reads in (small, large))
    ratio = times.ratio.mean(axis=0)
    assert ratio[[2, 3, 4, 7]] == pytest.approx([1, 1, 1, 1.4], rel=0.05)
    assert pooled.ratio[:, 2:] == pytest.approx(whole.ratio[:, 2:])
    assert facts.describe(7) == "rank 7 (host gpu-003, role actor, dp7 pp0 tp0)"
    assert facts.hosts_and_roles[7] == "gpu-003, role actor"


@pytest.mark.parametrize("fsdp", [False, True])
@pytest.mark.parametrize(
    ("stage", "compute"),
    [(Stage.PARAMS_ALL_GATHER, "forward-compute"), (Stage.GRADS_REDUCE_SCATTER, "backward-compute")],
)
def test_collectives_that_run_during_compute_have_no_wait_caused(stage: Stage, compute: str, fsdp: bool) -> None:
    """A rank continues its work during such a collective. So its duration does not measure waiting."""
    with memory_store() as store:
        topology = Topology(dp=4)
        store_simulated(store, "sharded", "slow:rank=1,factor=1.4", num_steps=5, topology=topology, fsdp=fsdp)
        state = ViewState(run="sharded", stage=stage, metric=Metric.WAIT)
        for reads in (Reads(StoreReader(store)), Reads(StoreReader(store), settings=ReadSettings(max_cells=1))):
            times = stage_times(reads, reads.facts(state), state.stage, Clock.WALL, StepRange(0, 4), Metric.WAIT)
            assert np.isfinite(times.ns).all()
            assert has_values(times, Metric.WAIT) is not fsdp
            said, of_step = (str(draw_says(replace(state, metric=each), reads)) for each in (Metric.WAIT, Metric.SHARE))
            reason = f"{stage.label} runs during compute, so its duration is not waiting time"
            assert [reason in said, reason in of_step, f"Compute time of {compute}" in said] == [fsdp] * 3
            assert ("for rank 1 (" in of_step) is (stage is Stage.GRADS_REDUCE_SCATTER and not fsdp)
            asked = HeatMapParameters(run="sharded", stage=stage.label, metric=Metric.WAIT)
            refusal = pytest.raises(UsageError, match="has no waiting time") if fsdp else nullcontext()
            with refusal:
                heat_map(asked, reads, StoreReader(store))


def test_stage_with_groups_along_different_axes_has_no_peers_to_compare() -> None:
    topology = Topology.parse("dp_replicate=2,dp_shard=2")
    peers = [peer_of_mask(topology.mask(name)) for name in ("dp_replicate", "dp_shard")]
    usual = Compared(peers="dp_group")
    among = compared_in(pa.table({"peer": peers}), usual, topology)
    assert np.unique(group_of_rank(among, topology)).tolist() == [0, 1, 2, 3]
    assert compared_in(pa.table({"peer": pa.array([], pa.int32())}), usual, topology) == usual


def test_groups_recorded_before_the_mesh_was_known_are_compared_with_later_ones() -> None:
    topology = Topology.parse("dp_replicate=2,dp_shard=2")
    shards = topology.mask("dp_shard")
    peers = pa.array([peer_of_axes(("dp_shard",), 2), peer_of_mask(shards)], pa.int32())
    among = compared_in(pa.table({"peer": peers}), Compared(peers="dp_group"), topology)
    assert among == Compared(peers="axes_group", mask=shards)


def test_context_and_expert_parallelism_have_their_own_lanes() -> None:
    names = [LANES[at].name for at in lane_of(np.array([1, 6, 7, 2, 99]))]
    assert names == ["tp", "cp", "ep", "dp", "host"]
