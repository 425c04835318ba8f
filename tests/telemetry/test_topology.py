import numpy as np
import pytest

from telemetry.errors import UsageError
from telemetry.record.mesh_learning import Stretch, mesh_of_strides
from telemetry.topology import AXES, Place, Topology
from tests.each_case import each_case

GRID = Topology(dp=2, pp=3, tp=4)
TITAN = Topology(mesh=(("pp", 2), ("dp_replicate", 2), ("dp_shard", 3), ("cp", 2), ("tp", 2)))
ALL = pytest.mark.parametrize("topology", [GRID, TITAN, Topology.parse("tp=2,pp=3,dp=2")], ids=str)


@ALL
def test_a_place_and_its_rank_are_inverse(topology: Topology) -> None:
    ranks = range(topology.world_size)
    assert [topology.rank(topology.place(rank)) for rank in ranks] == list(ranks)


def test_a_plain_grid_has_tp_fastest_and_dp_slowest() -> None:
    assert GRID.place(0) == Place(0, 0, 0)
    assert GRID.place(17) == Place(1, 1, 1)
    assert GRID.group(0, along="tp") == (0, 1, 2, 3)
    assert GRID.group(0, along="pp") == (0, 4, 8)
    assert GRID.group(0, along="dp") == (0, 12)


def test_a_mesh_has_its_own_rank_order() -> None:
    assert (TITAN.dp, TITAN.pp, TITAN.tp, TITAN.world_size) == (12, 2, 2, 48)
    assert TITAN.describe(0) == "pp0 dp_replicate0 dp_shard0 cp0 tp0"
    assert TITAN.describe(29) == "pp1 dp_replicate0 dp_shard1 cp0 tp1"
    assert TITAN.place(29) == Place(2, 1, 1)
    assert TITAN.group(5, along="pp") == (5, 29)
    assert TITAN.group(5, along="dp") == tuple(range(1, 24, 2))


@ALL
@pytest.mark.parametrize("axis", AXES)
def test_groups_along_an_axis_contain_every_rank_once(topology: Topology, axis: str) -> None:
    members = [rank for group in topology.groups(along=axis) for rank in group]  # type: ignore[arg-type]
    assert sorted(members) == list(range(topology.world_size))


@ALL
def test_values_of_ranks_are_arranged_by_place_and_back(topology: Topology) -> None:
    values = np.arange(3 * topology.world_size).reshape(3, topology.world_size)
    arranged = topology.arranged(values)
    assert arranged[(1, *topology.place(5))] == values[1, 5]
    assert (topology.by_rank(arranged) == values).all()


def test_members_along_axes_and_their_mask_are_inverse() -> None:
    for mask in range(1, 2 ** len(TITAN.mesh)):
        groups = TITAN.members(mask)
        assert sorted(groups.ravel().tolist()) == list(range(48))
        assert all(TITAN.mask_of(group.tolist()) == mask for group in groups)


def test_ranks_that_form_no_group_have_no_mask() -> None:
    assert [TITAN.mask_of(ranks) for ranks in ((0,), (), (0, 3), (0, 1, 2), (0, 99))] == [0] * 5


def test_masks_name_axes() -> None:
    assert TITAN.axes_of(TITAN.mask("dp_shard", "cp", "ep")) == ("dp_shard", "cp")
    assert TITAN.axes_of(TITAN.replica_mask) == ("dp_replicate", "dp_shard", "cp")


def test_a_text_and_its_topology_are_inverse() -> None:
    assert Topology.parse(str(TITAN)) == TITAN
    assert Topology.parse("dp=2, pp=3, tp=4") == GRID
    assert GRID.is_plain
    assert not TITAN.is_plain


def test_mesh_is_computed_from_the_strides_of_its_groups() -> None:
    pairs = {"tp": (2, 1), "cp": (2, 2), "dp_shard": (3, 4), "dp_replicate": (2, 12), "pp": (2, 24)}
    strides = {name: Stretch(degree, stride) for name, (degree, stride) in pairs.items()}
    assert mesh_of_strides(strides, 48) == TITAN
    assert mesh_of_strides(strides, 96) is None
    assert mesh_of_strides({"tp": Stretch(2, 1), "pp": Stretch(2, 4)}, 8) is None
    assert mesh_of_strides({"pp": Stretch(1, 8), "tp": Stretch(8, 1)}, 8) == Topology(tp=8)


@each_case("degrees", [{"dp": 0}, {"tp": -1}, {"dp": 2**20, "tp": 2}])
def test_invalid_degrees_are_refused_with_a_hint(degrees: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="hint: "):
        Topology(**degrees)


@each_case("text", ["", "pp", "pp=2;tp=2", "pp=2,pp=2", "pp=0", "model=2", "tp=999999999999", "dp=-1"])
def test_invalid_mesh_text_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError, match="hint: "):
        Topology.parse(text)


MESH = Topology.parse("pp=2,dp_shard=2,cp=2,tp=2")


def test_pipeline_neighbours_follow_the_rank_order_of_the_mesh() -> None:
    assert MESH.neighbour(1).tolist() == [*range(8, 16), *[-1] * 8]
    assert Topology(dp=2, pp=2, tp=2).neighbour(-1).tolist() == [-1, -1, 0, 1, -1, -1, 4, 5]


def test_values_by_group_are_in_the_order_of_its_members() -> None:
    mask = MESH.mask("dp_shard", "cp")
    assert (MESH.grouped(np.arange(16), mask) == MESH.members(mask)).all()
    assert all(MESH.group_of(rank, mask) == tuple(group) for group in MESH.members(mask).tolist() for rank in group)
    plain, values = Topology(dp=4, pp=2, tp=2), np.zeros((3, 16))
    assert np.shares_memory(plain.grouped(values, plain.replica_mask), values)


def test_replica_name_contains_its_coordinates_on_the_data_parallel_axes() -> None:
    assert [MESH.replica(index) for index in (1, 2)] == ["dp_shard0 cp1", "dp_shard1 cp0"]
    assert Topology(dp=4, pp=2).replica(3) == "dp3"
    assert (MESH.replica_axes, Topology(pp=2).replica_axes) == ("dp_shard x cp", "dp")
    assert (MESH.stride("pp"), MESH.stride("tp"), MESH.stride("ep")) == (8, 1, 1)
