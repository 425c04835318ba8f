"""Tensor and sequence parallelism by DTensor: who holds which shard, and where the collectives are.

                 norm           gather        qkv, up    out, down     scatter        sum
    x [b, s/tp, h] -> [b, s/tp, h] ~> [b, s, h] -> columns -> rows (partial) ~> [b, s/tp, h] -> + x

One all-gather and one reduce-scatter a block forward, and the mirror image backward.
"""

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInputOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from trainer.model.transformer import TransformerStage
from trainer.parallel.sequence import OverlappedProjections

SEQUENCE = Shard(1)
VOCAB = Shard(-1)


def shard_tensors(stage: TransformerStage, mesh: DeviceMesh, *, overlap: bool = False) -> None:
    """Turn the stage's parameters into shards along ``mesh``; activations between stages are pieces of sequence.

    ``overlap``: the projections of blocks multiply while their collectives run (``sequence.py``).

    The values are cut where they lie, without communication: every rank must hold the same, or none (meta device).
    """
    plan: dict[str, ParallelStyle] = {}
    for layer in stage.blocks:
        plan |= (_overlapped_plan if overlap else _block_plan)(f"blocks.{layer}")
    if stage.embedding is not None:
        plan["embedding"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=SEQUENCE)
    if stage.head is not None:
        plan["norm"] = SequenceParallel()
        plan["head"] = ColwiseParallel(input_layouts=SEQUENCE, output_layouts=VOCAB, use_local_output=False)
    parallelize_module(stage, mesh, plan, src_data_rank=None)


def _overlapped_plan(block: str) -> dict[str, ParallelStyle]:
    projections = OverlappedProjections(
        columns=("attention.qkv", "feed_forward.up"), rows=("attention.out", "feed_forward.down")
    )
    return {f"{block}.norm": SequenceParallel(), f"{block}.branches": projections}


def _block_plan(block: str) -> dict[str, ParallelStyle]:
    return {
        f"{block}.norm": SequenceParallel(),
        f"{block}.branches": PrepareModuleInputOutput(
            input_layouts=(SEQUENCE,),
            desired_input_layouts=(Replicate(),),
            output_layouts=(Partial(),),
            desired_output_layouts=(SEQUENCE,),
        ),
        f"{block}.branches.attention.qkv": ColwiseParallel(),
        f"{block}.branches.attention.out": RowwiseParallel(output_layouts=Partial(), use_local_output=False),
        f"{block}.branches.feed_forward.up": ColwiseParallel(),
        f"{block}.branches.feed_forward.down": RowwiseParallel(output_layouts=Partial(), use_local_output=False),
    }
