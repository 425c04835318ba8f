"""The grid of ranks as torch's DeviceMesh, checked against ``telemetry.topology.Topology``.

ZeRO-style data parallelism by ``fully_shard``: shards at rest, whole parameters during a step.

step      all-gather  F0 F1 B0 F2 B1 F3 B2 B3  reduce-scatter  optimizer on shards

Parameters are gathered once in a step, at their first use. They stay whole until the gradients are reduced, which also
happens once, after the last microbatch: torch's PipelineStage turns synchronisation off for the other microbatches. So
the traffic is that of ZeRO-2, and the storage between steps is that of ZeRO-3.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from telemetry.topology import AXES, Place, Topology
from trainer.model.transformer import TransformerStage


def shard_parameters(stage: TransformerStage, mesh: DeviceMesh, *, half: bool) -> None:
    """Shard every block, then the rest of the stage, along ``mesh``. Gradients are averaged over ``mesh``.

    ``half``: whether compute uses bfloat16.
    """
    dtype = torch.bfloat16 if half else torch.float32
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for block in stage.blocks.values():
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    fully_shard(stage, mesh=mesh, mp_policy=policy, reshard_after_forward=False)


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
        """Whether this rank reports for the job: it is the first rank of the last pipeline stage."""
        return self.place == Place(0, self.topology.pp - 1, 0)


def make_grid(topology: Topology, device: torch.device, *, backend: str | None = None) -> Grid:
    """The grid of this rank, with the mesh (dp, pp, tp) over all ranks. The default process group must exist and have
    the size of the grid.

    The groups of the mesh use ``backend``, or the backend of the default group if ``backend`` is None. Blocks until
    every rank has called this, because ranks create groups together.
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
