"""The pipeline: torch's schedules, with a span around the compute of each microbatch.

1F1B, pp 2, 4 microbatches              interleaved 1F1B, pp 2, 2 chunks a rank: rank 0 holds stages 0 and 2

rank 0   F0 F1 B0 F2 B1 F3 B2 B3        rank 0   F0 F1 f0 f1 ...      F: chunk 0   f: chunk 1
rank 1      F0 B0 F1 B1 F2 B2 F3 B3     rank 1      F0 F1 f0 b0 ...   the last rank sends on to the first

In 1F1B without overlap, a rank waits for each transfer before it continues. With overlap, in interleaved 1F1B and in
zero bubble, a rank posts a receive when the compute of its sender ends in the schedule, and waits for it where the data
is needed. It waits for sends at the end. With overlap, a rank with one chunk runs up to twice as many forwards ahead,
so that transfers have time.

zero bubble, pp 2, 4 microbatches       I: gradients of inputs   W: gradients of weights, which no other rank waits for

rank 0   F0 F1    I0 W0 F2 I1 W1 ...
rank 1      F0 I0 F1 I1 W0 F2 I2 W1 ...

A pipeline with one stage has the same schedule without transfers: F0 B0 F1 B1 ..., gradient accumulation.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
)
from torch.distributed.pipelining._backward import stage_backward
from torch.distributed.pipelining.stage import _PipelineStageBase

from telemetry import Stage, span
from telemetry.record.collectives.process_group import describe_transfer
from trainer.config import TrainConfig
from trainer.model.transformer import TransformerStage
from trainer.parallel.data import DataOverlap, backward_weights_by_bucket
from trainer.parallel.mesh import Grid

Schedule = Schedule1F1B | ScheduleInterleaved1F1B | ScheduleInterleavedZeroBubble


class ComputeHook(Protocol):
    """Is called before and after the compute of a pipeline stage, for example to inject a fault."""

    def before(self, stage: Stage) -> None:
        """Called before ``stage`` begins, outside its span."""

    def begin(self, stage: Stage) -> object:
        """Called inside the span of a compute stage, before the compute. The result is passed to :meth:`end`."""

    def end(self, stage: Stage, begun: object) -> None:
        """Called inside the span, after the compute."""


class TracedStage(PipelineStage):
    """A pipeline stage that records forward-compute and backward-compute, and labels its sends and receives."""

    def __init__(
        self,
        *arguments: Any,
        chunk: int,
        hook: ComputeHook,
        autocast: bool,
        overlap: DataOverlap | None,
        **keywords: Any,
    ) -> None:
        super().__init__(*arguments, **keywords)
        self.overlap = overlap
        self.chunk = chunk
        self.hook = hook
        self.autocast = autocast

    def forward_one_chunk(self, fwd_chunk_id: int, *arguments: Any, **keywords: Any) -> Any:
        """``fwd_chunk_id`` is the number of the microbatch."""
        self.hook.before(Stage.FORWARD_COMPUTE)
        with span(Stage.FORWARD_COMPUTE, fwd_chunk_id, self.chunk):
            begun = self.hook.begin(Stage.FORWARD_COMPUTE)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
                output = super().forward_one_chunk(fwd_chunk_id, *arguments, **keywords)
            self.hook.end(Stage.FORWARD_COMPUTE, begun)
        return output

    def backward_one_chunk(self, bwd_chunk_id: int, *arguments: Any, **keywords: Any) -> None:
        self.hook.before(Stage.BACKWARD_COMPUTE)
        with span(Stage.BACKWARD_COMPUTE, bwd_chunk_id, self.chunk):
            begun = self.hook.begin(Stage.BACKWARD_COMPUTE)
            super().backward_one_chunk(bwd_chunk_id, *arguments, **keywords)
            self.hook.end(Stage.BACKWARD_COMPUTE, begun)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *arguments: Any, **keywords: Any) -> None:
        """The second half of a backward, in a zero-bubble schedule."""
        with span(Stage.BACKWARD_COMPUTE, bwd_chunk_id, self.chunk):
            begun = self.hook.begin(Stage.BACKWARD_COMPUTE)
            super().backward_weight_one_chunk(bwd_chunk_id, *arguments, **keywords)
            self.hook.end(Stage.BACKWARD_COMPUTE, begun)

    def backward_maybe_with_nosync(
        self, backward_type: str, bwd_kwargs: dict[str, Any], last_backward: bool = False
    ) -> Any:
        """torch never reduces inside a backward. With overlap, the backward of the last microbatch reduces each bucket
        when the bucket is complete."""
        if self.overlap is None or not last_backward:
            return super().backward_maybe_with_nosync(backward_type, bwd_kwargs, last_backward)
        assert isinstance(self.submod, FSDPModule)
        self.submod.set_is_last_backward(True)
        self.submod.set_reshard_after_backward(True)
        self.submod.set_requires_gradient_sync(True)
        if backward_type == "weight":
            backward_weights_by_bucket(self.submod, bwd_kwargs["param_groups"])
            return (), None
        values = (bwd_kwargs[name] for name in ("stage_output", "output_grads", "input_values"))
        return stage_backward(*values), None

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        return self._described(super().get_fwd_recv_ops(fwd_chunk_id), Stage.FORWARD_RECV, fwd_chunk_id)

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        return self._described(super().get_fwd_send_ops(fwd_chunk_id), Stage.FORWARD_SEND, fwd_chunk_id)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        return self._described(super().get_bwd_recv_ops(bwd_chunk_id), Stage.BACKWARD_RECV, bwd_chunk_id)

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        return self._described(super().get_bwd_send_ops(bwd_chunk_id), Stage.BACKWARD_SEND, bwd_chunk_id)

    def perform_reduce_grad(self, grad_scale_factor: int) -> None:
        self.hook.before(Stage.GRADS_REDUCE_SCATTER)
        super().perform_reduce_grad(grad_scale_factor if self.overlap is None else 1)
        if self.overlap is not None:
            self.overlap.scale_later(self, grad_scale_factor)

    def _described(self, transfers: list[dist.P2POp], stage: Stage, microbatch: int) -> list[dist.P2POp]:
        """Describe transfers to the recorder. The peer alone does not show whether a transfer is forward or
        backward."""
        for transfer in transfers:
            self.hook.before(stage)
            describe_transfer(transfer.tensor, stage, microbatch=microbatch, chunk=self.chunk)
        return transfers


def make_schedule(
    stages: Sequence[TransformerStage],
    config: TrainConfig,
    grid: Grid,
    hook: ComputeHook,
    overlap: DataOverlap | None = None,
) -> Schedule:
    """The schedule that runs this rank's ``stages``, one for each chunk. Gradients are averaged over microbatches. With
    ``overlap``, they are complete after ``overlap.finish()``."""
    group = grid.mesh.get_group("pp")
    traced: list[_PipelineStageBase] = [
        _traced(stage, chunk, config, grid, group, hook, overlap) for chunk, stage in enumerate(stages)
    ]
    num_microbatches = config.parallel.num_microbatches
    if config.parallel.schedule == "zero-bubble":
        return ScheduleInterleavedZeroBubble(traced, num_microbatches, loss_fn=_loss_of)
    if len(traced) == 1 and not (config.overlap.pp and grid.topology.pp > 1):
        return Schedule1F1B(traced[0], num_microbatches, loss_fn=_loss_of)
    return ScheduleInterleaved1F1B(traced, num_microbatches, loss_fn=_loss_of)


def _traced(
    stage: TransformerStage,
    chunk: int,
    config: TrainConfig,
    grid: Grid,
    group: dist.ProcessGroup,
    hook: ComputeHook,
    overlap: DataOverlap | None,
) -> TracedStage:
    """The pipeline stage of one chunk, with spans around its compute.

    torch gets the shapes of inputs and outputs. Otherwise it runs the whole model once to infer them.

    With data parallelism, ``fully_shard`` sets the precision of compute and outputs. Without it, autocast sets the
    precision of compute, and outputs are float32.
    """
    index, num_stages = chunk * grid.topology.pp + grid.place.pp, config.parallel.num_stages
    batch, model = config.data.microbatch_size, config.model
    half, sharded = config.compute.half, grid.topology.dp > 1
    tokens = torch.empty(batch, model.sequence_length, dtype=torch.int64, device="meta")
    hidden = torch.empty(
        (batch, model.sequence_length // grid.topology.tp, model.hidden_size),
        dtype=torch.bfloat16 if half and sharded else torch.float32,
        device="meta",
        requires_grad=True,
    )
    return TracedStage(
        stage,
        index,
        num_stages,
        grid.device,
        input_args=tokens if index == 0 else hidden,
        output_args=torch.empty((), device="meta") if index == num_stages - 1 else hidden,
        group=group,
        chunk=chunk,
        hook=hook,
        autocast=half and not sharded,
        overlap=overlap,
    )


def _loss_of(output: Tensor, target: Tensor) -> Tensor:
    """The output of the last stage. It is already the loss, so the forward span includes the time of the loss."""
    return output
