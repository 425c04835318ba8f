"""Figures of meshes of other axes and orders: each rank at its place, under the names of its axes."""

import numpy as np
import pyarrow as pa
import pytest

from diagnose.simulate.role_names import parse_roles
from telemetry.group_names import peer_of_axes, peer_of_mask
from telemetry.stages import Stage
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import HeatCells
from telemetry.topology import Topology
from tests.memory_store import memory_store
from tests.ui.simulated_run import store_simulated
from ui.dashboard.data import Reads
from ui.dashboard.data.stage_times import Compared, _group_of_rank, compared_in, pooled_times, stage_times
from ui.dashboard.defaults import chosen_stage, group_members, groups_of
from ui.dashboard.figures.grid import rank_grid
from ui.dashboard.figures.grid_colours import by_standing
from ui.dashboard.figures.hang import Standing
from ui.dashboard.pages.grid.body import rank_body
from ui.dashboard.pages.heat_map.page import draw_says, has_values
from ui.dashboard.pages.timeline.ideal_strip import LANES, lane_of
from ui.dashboard.view_state import Clock, Group, Metric, StepRange, ViewState
from ui.dashboard.wording import degrees

TITAN = Topology.parse("pp=2,dp_shard=2,cp=2,tp=2")
HOSTS = ("gpu-01",) * TITAN.world_size
CELLS = by_standing([Standing.UNKNOWN] * TITAN.world_size)


def test_the_grid_has_each_rank_in_the_row_and_block_of_its_place() -> None:
    figure = rank_grid(TITAN, CELLS, HOSTS, chosen=None, path=(), keep="")
    drawn = np.asarray(figure.data[0].customdata)[:, :, 0]
    assert drawn[:, [0, 1, 3, 4]].tolist() == [[0, 1, 8, 9], [2, 3, 10, 11], [4, 5, 12, 13], [6, 7, 14, 15]]
    assert list(figure.layout.yaxis.ticktext)[1] == "dp_shard0 cp1"
    assert "pp1 dp_shard0 cp0 tp1" in figure.data[0].text[0][4]


def test_the_body_is_named_along_the_axes_of_the_mesh() -> None:
    figure = rank_body(TITAN, CELLS, HOSTS, chosen=3, path=(), keep="")
    assert figure.layout.scene.yaxis.title.text == "dp_shard x cp"
    assert list(figure.layout.scene.yaxis.ticktext) == [
        "dp_shard0 cp0",
        "dp_shard0 cp1",
        "dp_shard1 cp0",
        "dp_shard1 cp1",
    ]
    assert degrees(TITAN) == "pp 2 x dp_shard 2 x cp 2 x tp 2"


def test_axes_that_a_mesh_lacks_are_not_named() -> None:
    experts, hosts = Topology.parse("dp=2,ep=4"), ("gpu-01",) * 8
    cells = by_standing([Standing.UNKNOWN] * 8)
    slices = rank_grid(experts, cells, hosts, chosen=None, path=(), keep="").layout
    assert list(slices.xaxis.ticktext) == []
    assert not [text.text for text in slices.annotations if text.text.startswith("pp")]
    scene = rank_body(experts, cells, hosts, chosen=5, path=(), keep="").layout.scene
    assert [axis.title.text or "" for axis in (scene.xaxis, scene.yaxis, scene.zaxis)] == ["", "dp x ep", ""]
    assert [len(axis.ticktext) for axis in (scene.xaxis, scene.yaxis, scene.zaxis)] == [0, 8, 0]


def test_the_groups_of_a_timeline_are_those_of_the_mesh_with_several_ranks() -> None:
    experts, context = Topology.parse("dp=2,ep=4"), Topology.parse("pp=1,dp=2,cp=2,tp=2")
    assert groups_of(experts) == [Group.DP, Group.EP, Group.ALL]
    assert groups_of(context) == [Group.DP, Group.CP, Group.TP, Group.ALL]
    assert groups_of(Topology.parse("pp=2,cp=4")) == [Group.PP, Group.DP, Group.ALL]
    assert group_members(experts, 5, Group.EP) == (4, 5, 6, 7)
    assert group_members(context, 5, Group.CP) == (5, 7)


@pytest.mark.parametrize("topology", [TITAN, Topology.parse("tp=2,dp=4,pp=2"), Topology(dp=4, pp=2, tp=2)], ids=str)
def test_peers_are_ranks_of_one_stage_or_of_one_group(topology: Topology) -> None:
    for among, along in ((Compared(peers="dp_group"), "dp"), (Compared(peers="tp_group"), "tp")):
        number = _group_of_rank(among, topology)
        groups = {tuple(np.flatnonzero(number == one).tolist()) for one in np.unique(number)}
        assert groups == {tuple(sorted(group)) for group in topology.groups(along=along)}


@pytest.mark.parametrize("peers", ["pipeline_rank", "dp_group", "tp_group"])
def test_the_store_compares_the_same_peers_when_it_pools_a_mesh(peers: str) -> None:
    """Eight ranks are stored; read as a mesh that runs tp slowest, the ratio is that to the peers of that mesh."""
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
    number = _group_of_rank(Compared(peers=peers), topology)  # type: ignore[arg-type]
    expected = [mean[r] / np.median([mean[o] for o in range(8) if o != r and number[o] == number[r]]) for r in range(8)]
    assert ratio == pytest.approx(expected)


def test_who_is_waited_for_is_compared_within_the_groups_that_were_recorded() -> None:
    """Gradients are reduced along dp_shard only: the ranks of another replica do not wait for this one."""
    topology = Topology.parse("dp_replicate=2,dp_shard=2")
    stage, steps = Stage.GRADS_REDUCE_SCATTER, StepRange(0, 4)
    with memory_store() as store:
        store_simulated(store, "sharded", "slow:rank=1,factor=1.4", num_steps=5, topology=topology, fsdp=True)
        small, large = Reads(StoreReader(store)), Reads(StoreReader(store), max_cells=1)
        facts = small.facts(ViewState(run="sharded"))
        times = stage_times(small, facts, stage, Clock.WALL, steps, Metric.WAIT)
        whole, pooled = (pooled_times(reads, facts, times, Metric.WAIT, steps) for reads in (small, large))
    assert times.ratio == pytest.approx(times.ns / times.ns[:, [1, 0, 3, 2]])
    assert pooled.ratio == pytest.approx(whole.ratio)


def test_who_is_waited_for_in_an_exchange_of_experts_is_compared_within_the_group_along_ep() -> None:
    state = ViewState(run="experts", stage=Stage.EP_ALL_TO_ALL, metric=Metric.WAIT)
    with memory_store() as store:
        topology = Topology.parse("dp=2,ep=4")
        store_simulated(store, "experts", "slow:rank=5,factor=1.4", num_steps=5, topology=topology, experts=True)
        small, large = Reads(StoreReader(store)), Reads(StoreReader(store), max_cells=1)
        facts, steps = small.facts(state), StepRange(0, 4)
        assert chosen_stage(state, facts) is Stage.EP_ALL_TO_ALL
        times = stage_times(small, facts, state.stage, Clock.WALL, steps, Metric.WAIT)
        whole, pooled = (pooled_times(reads, facts, times, Metric.WAIT, steps) for reads in (small, large))
        said = str(draw_says(state, small))
    assert times.ratio[:, 5] == pytest.approx(times.ns[:, 5] / np.median(times.ns[:, [4, 6, 7]], axis=1))
    assert pooled.ratio == pytest.approx(whole.ratio)
    assert "for rank 5 (host gpu-002, dp1 ep1)" in said


def test_ranks_are_compared_within_their_role_and_named_with_it() -> None:
    roles = parse_roles("rollout=2,reward=3,actor=3")
    with memory_store() as store:
        store_simulated(store, "roles", "slow:rank=7,factor=1.4", num_steps=5, topology=Topology(dp=8), roles=roles)
        small, large = Reads(StoreReader(store)), Reads(StoreReader(store), max_cells=1)
        facts = small.facts(ViewState(run="roles"))
        times = stage_times(small, facts, Stage.FORWARD_COMPUTE, Clock.WALL, StepRange(0, 4))
        whole, pooled = (pooled_times(reads, facts, times, Metric.RATIO, StepRange(0, 4)) for reads in (small, large))
    ratio = times.ratio.mean(axis=0)
    assert ratio[[2, 3, 4, 7]] == pytest.approx([1, 1, 1, 1.4], rel=0.05)
    assert pooled.ratio[:, 2:] == pytest.approx(whole.ratio[:, 2:])
    assert facts.describe(7) == "rank 7 (host gpu-003, role actor, dp7 pp0 tp0)"


@pytest.mark.parametrize("fsdp", [False, True])
def test_nobody_is_waited_for_in_gathers_that_are_prefetched_inside_computes(fsdp: bool) -> None:
    """A rank that is ahead works on during them: how long they last says nothing about waiting."""
    with memory_store() as store:
        topology = Topology(dp=4)
        store_simulated(store, "sharded", "slow:rank=1,factor=1.4", num_steps=5, topology=topology, fsdp=fsdp)
        state = ViewState(run="sharded", stage=Stage.PARAMS_ALL_GATHER, metric=Metric.WAIT)
        for reads in (Reads(StoreReader(store)), Reads(StoreReader(store), max_cells=1)):
            times = stage_times(reads, reads.facts(state), state.stage, Clock.WALL, StepRange(0, 4), Metric.WAIT)
            assert np.isfinite(times.ns).all()
            assert has_values(times, Metric.WAIT) is not fsdp
            said = str(draw_says(state, reads))
            assert ("Gathers that run during compute are not counted" in said) is fsdp


def test_nobody_is_waited_for_where_the_groups_of_a_stage_lie_along_different_axes() -> None:
    topology = Topology.parse("dp_replicate=2,dp_shard=2")
    peers = [peer_of_mask(topology.mask(name)) for name in ("dp_replicate", "dp_shard")]
    usual = Compared(peers="dp_group")
    among = compared_in(pa.table({"peer": peers}), usual, topology)
    assert np.unique(_group_of_rank(among, topology)).tolist() == [0, 1, 2, 3]
    assert compared_in(pa.table({"peer": pa.array([], pa.int32())}), usual, topology) == usual


def test_groups_from_before_the_mesh_was_known_are_compared_with_those_after() -> None:
    topology = Topology.parse("dp_replicate=2,dp_shard=2")
    shards = topology.mask("dp_shard")
    peers = pa.array([peer_of_axes(("dp_shard",), 2), peer_of_mask(shards)], pa.int32())
    among = compared_in(pa.table({"peer": peers}), Compared(peers="dp_group"), topology)
    assert among == Compared(peers="axes_group", mask=shards)


def test_context_and_expert_parallelism_have_lanes_of_their_own() -> None:
    names = [LANES[at].name for at in lane_of(np.array([1, 6, 7, 2, 99]))]
    assert names == ["tp", "cp", "ep", "dp", "host"]
