"""Data-parallel communication beside compute.

without   data-load  gather F0 .. gather F0 .. ...            B3 ............   reduce reduce reduce   clip  optimizer
with      |- gather of every bucket -|
          data-load  F0 ...                     B3 ..last block.. ..first block..   wait   clip  optimizer
                                                            |- reduce -|      |- reduce -|

A bucket is a block, or the rest of a stage. Gathers of a step start in the order of their use, before its data is
loaded. In the backward of the last microbatch, a bucket is reduced as soon as its gradients exist. In a zero-bubble
schedule, this is its second half, which computes the gradients of weights. Gradients are complete, and averaged over
microbatches, after :meth:`DataOverlap.finish` (MegaScale, arXiv 2402.15627, section 3.2).
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter
from torch.distributed.pipelining._backward import _get_grad_fn_or_grad_acc, stage_backward_weight

from trainer.model.transformer import TransformerStage


class Scaled(Protocol):
    """A pipeline stage whose gradients are sums over microbatches."""

    def scale_grads(self, grad_scale_factor: int) -> None:
        """Divide the gradients by ``grad_scale_factor``."""


class DataOverlap:
    """Runs the gathers and reductions of the stages of a rank beside compute. The stages must be sharded."""

    def __init__(self, stages: Sequence[TransformerStage]) -> None:
        self._buckets = [module for stage in stages for module in stage.modules() if isinstance(module, FSDPModule)]
        self._reductions = AsynchronousReduction()
        self._sums: list[tuple[Scaled, int]] = []
        self._is_first_step = True
        if next(stages[0].parameters()).device.type == "cpu":  # on a GPU, reductions run on their own stream
            for bucket in self._buckets:
                bucket.set_custom_reduce_scatter(self._reductions)

    def prefetch(self) -> None:
        """Start to gather the parameters of all buckets. torch prepares its buckets in the first forward, so the first
        step gathers them there."""
        if not self._is_first_step:
            for bucket in self._buckets:
                bucket.unshard(async_op=True)
        self._is_first_step = False

    def scale_later(self, stage: Scaled, factor: int) -> None:
        """Let :meth:`finish` divide the gradients of a stage, when they are complete."""
        self._sums.append((stage, factor))

    def finish(self) -> None:
        """Wait until all gradients are complete, and divide them."""
        self._reductions.wait()
        for stage, factor in self._sums:
            if factor != 1:
                stage.scale_grads(factor)
        self._sums.clear()


class AsynchronousReduction(DefaultReduceScatter):
    """A reduce-scatter that the rank does not wait for at once. The gradients of ``fully_shard`` are views of its
    output, and ``fully_shard`` does not read them."""

    def __init__(self) -> None:
        self._pending: list[tuple[dist.Work, Tensor]] = []

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> dist.Work:
        work = super().__call__(output_tensor, input_tensor, group, op, async_op=True)
        self._pending.append((work, input_tensor))
        return work

    def wait(self) -> None:
        """Wait for all reductions that were issued."""
        for work, _ in self._pending:
            work.wait()
        self._pending.clear()


def backward_weights_by_bucket(stage: FSDPModule, groups: list[dict[str, Any]]) -> None:
    """Compute the gradients of weights, the second half of a zero-bubble backward, and reduce each bucket of ``stage``
    when its last gradient exists. The rest of the stage is first, because the head is its largest part.

    ``groups`` are torch's: weights whose gradients are computed together, and the saved gradients that they need.
    """
    assert isinstance(stage, nn.Module)
    buckets = [module for module in stage.modules() if isinstance(module, FSDPModule)]
    bucket_of = {
        _get_grad_fn_or_grad_acc(weight): number
        for number, bucket in enumerate(buckets)  # children come after their parents, so they overwrite
        for weight in bucket.parameters()
    }
    buckets_of_groups = [[bucket_of[weight] for weight in group["params"]] for group in groups]
    missing = Counter(number for numbers in buckets_of_groups for number in numbers)
    for numbers, group in sorted(zip(buckets_of_groups, groups, strict=True), key=lambda pair: min(pair[0])):
        stage_backward_weight(stage.parameters(), [group])
        missing.subtract(numbers)
        for number in set(numbers):
            if not missing[number]:
                reduce_bucket(buckets[number])


def reduce_bucket(bucket: FSDPModule) -> None:
    """Issue the reduction of the gradients of a bucket, without those of buckets inside it."""
    for group in bucket._get_fsdp_state()._fsdp_param_groups:
        group.post_backward()
