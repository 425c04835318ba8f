"""A tiny model on eight gloo ranks and several meshes. It uses DTensor tensor and sequence parallelism, fully_shard,
pipelining, and the communication of context and expert parallelism.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import telemetry
from telemetry.record.collectives.process_group import register_traced_backend
from telemetry.stages import Stage
from telemetry.topology import Topology


@dataclass(frozen=True, kw_only=True)
class Job:
    """The mesh of the eight ranks, and how their groups are created."""

    mesh: Topology
    descriptions: dict[str, str] | None = None
    """Description of the groups along each axis. None: a DeviceMesh creates the groups."""


GRID = Topology(dp=2, pp=2, tp=2)
PLAIN = Job(mesh=GRID)
TORCHTITAN = Job(mesh=Topology.parse("pp=2,dp_shard=2,tp=2"))
MEGATRON = Job(
    mesh=Topology.parse("pp=2,dp=2,tp=2"),
    descriptions={
        "tp": "TENSOR_MODEL_PARALLEL_GROUP",
        "dp": "DATA_PARALLEL_GROUP",
        "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
    },
)
CONTEXT = Job(mesh=Topology.parse("pp=1,dp=2,cp=2,tp=2"))
EXPERT_GROUP = "EXPERT_MODEL_PARALLEL_GROUP"
EXPERTS = Job(
    mesh=Topology.parse("dp=2,ep=4"),
    descriptions={"dp": "EXPERT_DATA_PARALLEL_GROUP", "ep": EXPERT_GROUP},
)
STEPS, MICROBATCHES = 3, 4
SHAPE = (2, 4, 16)
"""Shape of a microbatch: rows, sequence, hidden."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.down(torch.relu(self.up(hidden)))


def train_grid(folder: Path, *, traced: bool, job: Job = PLAIN) -> list[list[float]]:
    """Train. Return the losses of each rank, by rank. If ``traced``, the rank files are in ``folder``."""
    num_ranks = job.mesh.world_size
    torch.multiprocessing.start_processes(
        _train_rank, args=(folder, traced, job), nprocs=num_ranks, start_method="fork"
    )
    return [json.loads((folder / f"losses-{rank}.json").read_text()) for rank in range(num_ranks)]


Around = Callable[[], AbstractContextManager[None]]
"""A context that a rank enters around each of its forwards."""
Step = Callable[[], float]


def _train_rank(rank: int, folder: Path, traced: bool, job: Job) -> None:
    torch.set_num_threads(1)
    world_size = job.mesh.world_size
    if traced:
        telemetry.start("grid", topology=job.mesh, rank=rank, spool=folder, agent=False)
        register_traced_backend("gloo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet-{traced}", rank=rank, world_size=world_size)
    mesh = device_mesh(job, rank)
    (folder / f"losses-{rank}.json").write_text(json.dumps([step() for step in steps(job, mesh, STEPS)]))
    everyone: list[object] = [None] * world_size
    dist.all_gather_object(everyone, rank)
    assert everyone == list(range(world_size))
    dist.destroy_process_group()
    telemetry.stop()


def device_mesh(job: Job, rank: int) -> DeviceMesh:
    names = tuple(name for name, _ in job.mesh.mesh)
    shape = tuple(degree for _, degree in job.mesh.mesh)
    if job.descriptions is None:
        return init_device_mesh("cpu", shape, mesh_dim_names=names)
    groups = [_group(job.mesh.members(job.mesh.mask(name)).tolist(), job.descriptions[name], rank) for name in names]
    ranks = torch.arange(job.mesh.world_size).reshape(shape)
    return DeviceMesh.from_group(groups, "cpu", mesh=ranks, mesh_dim_names=names)


def _group(members: list[list[int]], description: str, rank: int) -> dist.ProcessGroup:
    """Create every group, as every rank does in Megatron. Return the group of this rank."""
    made = [dist.new_group(ranks, group_desc=description) for ranks in members]
    return next(group for group, ranks in zip(made, members, strict=True) if rank in ranks)


def steps(job: Job, mesh: DeviceMesh, num_steps: int, around_forward: Around = nullcontext) -> Iterator[Step]:
    """The steps of this rank. Call each one once and in order. It returns the loss."""
    if "ep" in mesh.mesh_dim_names:
        model, run = _with_experts(mesh, around_forward)
    else:
        shards = mesh["dp", "cp"]._flatten("dp_cp") if "cp" in mesh.mesh_dim_names else mesh[_dp_axis(mesh)]
        model = _model(mesh, shards)
        is_pipelined = mesh["pp"].size() > 1
        run = _pipelined(mesh, model, around_forward) if is_pipelined else _in_context(job, mesh, model, around_forward)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    return (partial(_step, number, run, optimiser) for number in range(num_steps))


def _dp_axis(mesh: DeviceMesh) -> str:
    return next(name for name in mesh.mesh_dim_names if name.startswith("dp"))


def _step(number: int, run: Callable[[Tensor], Tensor], optimiser: torch.optim.Optimizer) -> float:
    with telemetry.step(number):
        total = run(torch.randn(SHAPE[0] * MICROBATCHES, *SHAPE[1:], generator=torch.Generator().manual_seed(number)))
        optimiser.step()
        optimiser.zero_grad()
        dist.all_reduce(total)
        dist.barrier()
    return total.item()


class _TimedStage(PipelineStage):
    """A pipeline stage that records its compute spans."""

    around_forward: Around

    def forward_one_chunk(self, *arguments: Any, **keywords: Any) -> Any:
        with telemetry.span(Stage.FORWARD_COMPUTE), self.around_forward():
            return super().forward_one_chunk(*arguments, **keywords)

    def backward_one_chunk(self, *arguments: Any, **keywords: Any) -> Any:
        with telemetry.span(Stage.BACKWARD_COMPUTE):
            return super().backward_one_chunk(*arguments, **keywords)


def _pipelined(mesh: DeviceMesh, model: Block, around_forward: Around) -> Callable[[Tensor], Tensor]:
    schedule, first = _schedule(model, mesh, around_forward), mesh["pp"].get_local_rank() == 0

    def run(batch: Tensor) -> Tensor:
        losses: list[Tensor] = []
        if first:
            schedule.step(batch)
        else:
            schedule.step(target=batch, losses=losses)
        return torch.stack(losses).sum() if losses else torch.zeros(())

    return run


def _in_context(job: Job, mesh: DeviceMesh, model: Block, around_forward: Around) -> Callable[[Tensor], Tensor]:
    """One stage. Its ranks exchange keys and values along ``cp`` in three ways, and tokens with the experts."""
    context = mesh["cp"].get_group()
    members = job.mesh.members(job.mesh.mask("dp", "cp")).tolist()
    experts = _group(members, EXPERT_GROUP, dist.get_rank())
    (other,) = set(dist.get_process_group_ranks(context)) - {dist.get_rank()}

    def exchange() -> None:
        own, theirs = torch.ones(8), torch.zeros(8)
        dist.all_gather([torch.zeros(8), torch.zeros(8)], own, group=context)
        ring = [dist.P2POp(dist.isend, own, other, context), dist.P2POp(dist.irecv, theirs, other, context)]
        for work in dist.batch_isend_irecv(ring):
            work.wait()
        for group in (context, experts):
            dist.all_to_all_single(theirs, own, group=group)

    def forward(batch: Tensor) -> Tensor:
        exchange()
        return model(batch)

    return partial(_forward_and_backward, forward, around_forward)


def _with_experts(mesh: DeviceMesh, around_forward: Around) -> tuple[Block, Callable[[Tensor], Tensor]]:
    """Tokens are sent to the experts and back, also in the backward. Parameters are sharded over all ranks."""
    torch.manual_seed(0)
    model, experts = Block(), mesh["ep"].get_group()
    everyone = list(range(dist.get_world_size()))
    fully_shard(model, mesh=DeviceMesh.from_group(_group([everyone], "DATA_PARALLEL_GROUP", dist.get_rank()), "cpu"))

    def forward(batch: Tensor) -> Tensor:
        tokens = all_to_all_single_autograd(batch.reshape(-1, SHAPE[-1]).requires_grad_(), None, None, experts)
        return all_to_all_single_autograd(model(tokens), None, None, experts)

    return model, partial(_forward_and_backward, forward, around_forward)


def _forward_and_backward(forward: Callable[[Tensor], Tensor], around_forward: Around, batch: Tensor) -> Tensor:
    total = torch.zeros(())
    for microbatch in batch.chunk(MICROBATCHES):
        with telemetry.span(Stage.FORWARD_COMPUTE), around_forward():
            loss = forward(microbatch).square().sum()
        with telemetry.span(Stage.BACKWARD_COMPUTE):
            loss.backward()
        total += loss.detach()
    return total


def _model(mesh: DeviceMesh, shards: DeviceMesh) -> Block:
    torch.manual_seed(mesh["pp"].get_local_rank())
    model = Block()
    plan = {"up": ColwiseParallel(input_layouts=Shard(1)), "down": RowwiseParallel(output_layouts=Shard(1))}
    parallelize_module(model, mesh["tp"], plan)
    fully_shard(model, mesh=shards)
    return model


def _schedule(model: Block, mesh: DeviceMesh, around_forward: Around) -> Schedule1F1B:
    index = mesh["pp"].get_local_rank()
    stage = _TimedStage(
        model,
        index,
        mesh["pp"].size(),
        torch.device("cpu"),
        group=mesh["pp"].get_group(),
        input_args=(torch.empty(SHAPE, device="meta", requires_grad=index > 0),),
        output_args=torch.empty(SHAPE, device="meta", requires_grad=True),
    )
    stage.around_forward = around_forward
    return Schedule1F1B(stage, MICROBATCHES, loss_fn=lambda output, _: (output * output).sum())
