"""Process groups that were created before the session that records them."""

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed.device_mesh import init_device_mesh

import telemetry
from telemetry.record.collectives.process_group import TracedGroup, register_traced_backend
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.telemetry.record.collectives.two_ranks import two_ranks
from tests.telemetry.recording import Recorded, recorded

pytestmark = pytest.mark.gloo


def _sessions(rank: int, folder: Path) -> None:
    """Three sessions over one set of groups. The mesh of the first two is learned, that of the last is given."""
    torch.set_num_threads(1)
    os.environ["WORLD_SIZE"] = "2"
    dist.init_process_group(
        register_traced_backend("gloo"), init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    group = dist.new_group([0, 1], group_desc="mesh_tp")
    for name, mesh in (
        ("learned", None),
        ("again", None),
        ("given", init_device_mesh("cpu", (2,), mesh_dim_names=("pp",))),
    ):
        telemetry.start(name, topology=mesh, rank=rank, attempt=0, spool=folder / name, agent=False)
        with telemetry.step(0):
            dist.all_reduce(torch.ones(1), group=group)
            _transfer(rank)
        telemetry.stop()
    dist.destroy_process_group()


def _transfer(rank: int) -> None:
    if rank == 0:
        dist.send(torch.ones(1), dst=1)
    else:
        dist.recv(torch.ones(1), src=0)


def _operations(found: Recorded) -> list[tuple[int, int]]:
    spans = found.spans[found.spans["op_seq"] > 0]
    return [(int(span["stage"]), int(span["peer"])) for span in spans]


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recorded]:
    """The records of rank 0 in each session."""
    folder = tmp_path_factory.mktemp("sessions")
    torch.multiprocessing.start_processes(_sessions, args=(folder,), nprocs=2, start_method="fork")
    return {name: recorded(folder / name) for name in ("learned", "again", "given")}


@pytest.mark.parametrize("name", ["learned", "again"])
def test_each_session_learns_the_mesh_from_existing_groups(sessions: dict[str, Recorded], name: str) -> None:
    found = sessions[name]
    assert found.reader.identity().topology == Topology(tp=2)
    assert _operations(found) == [(Stage.TP_ALL_REDUCE, -2 - 4)]
    assert {shown.mask for shown in found.reader.live().operations} == {4}


def test_mesh_given_to_a_later_session_applies_to_existing_groups(sessions: dict[str, Recorded]) -> None:
    found = sessions["given"]
    assert found.reader.identity().topology == Topology(pp=2)
    assert _operations(found) == [(Stage.FORWARD_SEND, 1)]
    assert {shown.mask for shown in found.reader.live().operations} == {2}


def _one_breaks(rank: int) -> None:
    world, other = dist.group.WORLD, dist.new_group([0, 1])
    assert isinstance(world, TracedGroup)
    assert isinstance(other, TracedGroup)
    world.ranks = None  # type: ignore[assignment]  # the group cannot be placed in the mesh
    dist.new_group([0, 1], group_desc="mesh_tp")
    assert other.place.purpose == "tp"


def test_group_that_cannot_be_placed_does_not_affect_other_groups(tmp_path: Path) -> None:
    two_ranks(_one_breaks, tmp_path)


def _batch_fails(rank: int) -> None:
    world = dist.group.WORLD
    assert isinstance(world, TracedGroup)
    with pytest.raises(RuntimeError):
        world._start_coalescing(torch.device("cpu"))  # gloo has no batches
    dist.all_reduce(torch.ones(1))


def test_operations_are_recorded_after_a_batch_that_failed_to_start(tmp_path: Path) -> None:
    two_ranks(_batch_fails, tmp_path, grid=Topology(tp=2))
    assert recorded(tmp_path).stages.count("tp-all-reduce") == 1
