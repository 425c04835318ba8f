"""The topology of a run in which some ranks have not learned the mesh of the job."""

import pytest

from diagnose.hang.from_states import evidence_from_states
from telemetry.records import topology_in, topology_of
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import Ranks, RunGrids
from telemetry.topology import Topology
from tests.diagnose.hang.made_states import state
from tests.memory_store import memory_store
from tests.telemetry.made_rows import insert, made

MESH, PLAIN = Topology.parse("pp=2,dp_shard=2,tp=2"), Topology(dp=8)
MESHES_OF_RANKS = [
    ([None, MESH, MESH], MESH),  # rank 0 ended before it learned the mesh
    ([MESH, MESH, None], MESH),  # rank 2 started again and has not learned it yet
    ([MESH, None], MESH),
    ([None, MESH], PLAIN),
]


@pytest.mark.parametrize(("meshes", "expected"), MESHES_OF_RANKS)
def test_every_reader_takes_the_mesh_that_most_ranks_have(meshes: list[Topology | None], expected: Topology) -> None:
    grids = [PLAIN if mesh is None else mesh for mesh in meshes]
    sizes = [{"dp": one.dp, "pp": one.pp, "tp": one.tp} for one in grids]
    rows = [
        {"rank": rank, "started_ns": rank, "mesh": str(grids[rank])}
        | {f"{axis}_size": degree for axis, degree in size.items()}
        for rank, size in enumerate(sizes)
    ]
    with memory_store() as store:
        insert(store, "ranks", made("ranks", rows))
        reader = StoreReader(store)
        ranks = reader.read(Ranks(run_id="run", attempt=0))
        (grid,) = reader.read(RunGrids(run_ids=("run",))).to_pylist()
    assert (topology_of(ranks), topology_in(grid)) == (expected, expected)
    states = {
        rank: state(rank, "step", [], topology=size | {"mesh": str(grids[rank])}) for rank, size in enumerate(sizes)
    }
    assert evidence_from_states(states).topology == expected
