"""The grid of ranks as torch's DeviceMesh, held to the one truth: ``telemetry.topology.Topology``."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from telemetry.topology import AXES, Place, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """This rank's place in the job."""

    topology: Topology
    rank: int
    device: torch.device
    mesh: DeviceMesh

    @property
    def place(self) -> Place:
        return self.topology.place(self.rank)

    @property
    def reports(self) -> bool:
        """Whether this is the rank that reports for the job: the last pipeline stage's first."""
        return self.place == Place(0, self.topology.pp - 1, 0)


def make_grid(topology: Topology, device: torch.device, *, backend: str | None = None) -> Grid:
    """The mesh (dp, pp, tp) over all ranks; the default process group must exist and have the grid's size.

    Its groups use the default group's backend, or another when ``backend`` names one. Blocks until every rank has
    come: groups are made together.
    """
    rank = dist.get_rank()
    assert dist.get_world_size() == topology.world_size, (dist.get_world_size(), topology)
    shape = (topology.dp, topology.pp, topology.tp)
    chosen: dict[int | str, Any] | None = dict.fromkeys(AXES, backend) if backend else None
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=AXES, backend_override=chosen)
    coordinate = mesh.get_coordinate()
    assert coordinate is not None
    assert tuple(coordinate) == topology.place(rank), (coordinate, topology.place(rank))
    return Grid(topology=topology, rank=rank, device=device, mesh=mesh)
