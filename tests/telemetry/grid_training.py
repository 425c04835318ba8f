"""A tiny model on a 2x2x2 grid of eight gloo ranks: DTensor tensor and sequence parallel, fully_shard, pipelining."""

import json
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import telemetry
from telemetry.integrations.process_group import register_traced_backend
from telemetry.topology import AXES, Topology

GRID = Topology(dp=2, pp=2, tp=2)
STEPS, MICROBATCHES = 3, 4
SHAPE = (2, 4, 16)
"""Of a microbatch: rows, sequence, hidden."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.down(torch.relu(self.up(hidden)))


def train_grid(folder: Path, *, traced: bool) -> list[list[float]]:
    """Train; the losses of each rank, by rank. Traced, the rank files lie in ``folder``."""
    torch.multiprocessing.start_processes(
        _train_rank, args=(folder, traced), nprocs=GRID.world_size, start_method="fork"
    )
    return [json.loads((folder / f"losses-{rank}.json").read_text()) for rank in range(GRID.world_size)]


def _train_rank(rank: int, folder: Path, traced: bool) -> None:
    torch.set_num_threads(1)
    backend = "gloo"
    if traced:
        telemetry.start("grid", topology=GRID, rank=rank, spool=folder, agent=False)
        backend = register_traced_backend("gloo", GRID)
    rendezvous = f"file://{folder}/meet-{traced}"
    dist.init_process_group(backend, init_method=rendezvous, rank=rank, world_size=GRID.world_size)
    mesh = init_device_mesh("cpu", (GRID.dp, GRID.pp, GRID.tp), mesh_dim_names=AXES)
    (folder / f"losses-{rank}.json").write_text(json.dumps(_steps(mesh)))
    everyone: list[object] = [None] * GRID.world_size
    dist.all_gather_object(everyone, rank)
    assert everyone == list(range(GRID.world_size))
    dist.destroy_process_group()
    telemetry.stop()


def _steps(mesh: DeviceMesh) -> list[float]:
    model = _model(mesh)
    schedule = _schedule(model, mesh)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    return [_step(number, schedule, optimiser, first=mesh["pp"].get_local_rank() == 0) for number in range(STEPS)]


def _step(number: int, schedule: Schedule1F1B, optimiser: torch.optim.Optimizer, *, first: bool) -> float:
    with telemetry.step(number):
        batch = torch.randn(SHAPE[0] * MICROBATCHES, *SHAPE[1:], generator=torch.Generator().manual_seed(number))
        losses: list[Tensor] = []
        if first:
            schedule.step(batch)
        else:
            schedule.step(target=batch, losses=losses)
        optimiser.step()
        optimiser.zero_grad()
        total = torch.stack(losses).sum() if losses else torch.zeros(())
        dist.all_reduce(total)
        dist.barrier()
    return total.item()


def _model(mesh: DeviceMesh) -> Block:
    torch.manual_seed(mesh["pp"].get_local_rank())
    model = Block()
    plan = {"up": ColwiseParallel(input_layouts=Shard(1)), "down": RowwiseParallel(output_layouts=Shard(1))}
    parallelize_module(model, mesh["tp"], plan)
    fully_shard(model, mesh=mesh["dp"])
    return model


def _schedule(model: Block, mesh: DeviceMesh) -> Schedule1F1B:
    index = mesh["pp"].get_local_rank()
    stage = PipelineStage(
        model,
        index,
        GRID.pp,
        torch.device("cpu"),
        group=mesh["pp"].get_group(),
        input_args=(torch.empty(SHAPE, device="meta", requires_grad=index > 0),),
        output_args=torch.empty(SHAPE, device="meta", requires_grad=True),
    )
    return Schedule1F1B(stage, MICROBATCHES, loss_fn=lambda output, _: (output * output).sum())
