"""Tensor and sequence parallelism by DTensor: which rank holds which shard, and where the collectives are.

                 norm           gather        qkv, up    out, down     scatter        sum
    x [b, s/tp, h] -> [b, s/tp, h] ~> [b, s, h] -> columns -> rows (partial) ~> [b, s/tp, h] -> + x

The forward of a parallel block has one all-gather and one reduce-scatter. That of a serial block has two of each. The
backward mirrors the forward.
"""

from torch import nn
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

from trainer.model.block import Block
from trainer.model.transformer import TransformerStage
from trainer.parallel.sequence import OverlappedProjections

SEQUENCE = Shard(1)
VOCAB = Shard(-1)
ROWS = ("out", "down")
"""Projections that are sharded by rows. Their outputs are sums over ranks."""


def shard_tensors(stage: TransformerStage, mesh: DeviceMesh, *, overlap: bool = False) -> None:
    """Shard the parameters of the stage along ``mesh``. Activations between stages are parts of the sequence.

    ``overlap``: the projections of blocks multiply while their collectives run (``sequence.py``).

    Each rank cuts its own values, without communication. So all ranks must hold the same values, or none (meta device).
    """
    plan: dict[str, ParallelStyle] = {}
    for layer, block in stage.blocks.items():
        assert isinstance(block, Block)
        plan |= (_overlapped_plan if overlap else _block_plan)(f"blocks.{layer}", block)
    if stage.embedding is not None:
        plan["embedding"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=SEQUENCE)
    if stage.head is not None:
        plan["norm"] = SequenceParallel()
        plan["head"] = ColwiseParallel(input_layouts=SEQUENCE, output_layouts=VOCAB, use_local_output=False)
    parallelize_module(stage, mesh, plan, src_data_rank=None)


def _overlapped_plan(prefix: str, block: Block) -> dict[str, ParallelStyle]:
    norms = _named(block, nn.LayerNorm)
    plan: dict[str, ParallelStyle] = {f"{prefix}.{name}": SequenceParallel() for name in norms}
    for name in block.gathered:
        projections = _named(block.get_submodule(name), nn.Linear)
        plan[f"{prefix}.{name}"] = OverlappedProjections(
            columns=[inner for inner in projections if not inner.endswith(ROWS)],
            rows=[inner for inner in projections if inner.endswith(ROWS)],
        )
    return plan


def _named(module: nn.Module, kind: type[nn.Module]) -> list[str]:
    return [name for name, inner in module.named_modules() if isinstance(inner, kind)]


def _block_plan(prefix: str, block: Block) -> dict[str, ParallelStyle]:
    """The plan for a block. Matrices whose outputs are summed over ranks are sharded by rows, the others by columns."""
    plan: dict[str, ParallelStyle] = {
        f"{prefix}.{name}": PrepareModuleInputOutput(
            input_layouts=(SEQUENCE,),
            desired_input_layouts=(Replicate(),),
            output_layouts=(Partial(),),
            desired_output_layouts=(SEQUENCE,),
        )
        for name in block.gathered
    }
    for name, module in block.named_modules():
        if isinstance(module, nn.LayerNorm):
            plan[f"{prefix}.{name}"] = SequenceParallel()
        elif name.endswith(ROWS):
            plan[f"{prefix}.{name}"] = RowwiseParallel(output_layouts=Partial(), use_local_output=False)
        elif isinstance(module, nn.Linear):
            plan[f"{prefix}.{name}"] = ColwiseParallel()
    return plan
