"""ZeRO-style data parallelism by ``fully_shard``: shards at rest, whole parameters during a step.

step      all-gather  F0 F1 B0 F2 B1 F3 B2 B3  reduce-scatter  optimizer on shards

Parameters are gathered once a step, at their first use, and stay whole until the gradients are reduced, also once,
after the last microbatch: torch's PipelineStage turns the synchronisation off for the others and calls for it at the
end. That is ZeRO-2's traffic with ZeRO-3's storage between steps.
"""

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from trainer.config import Precision
from trainer.model.transformer import TransformerStage


def shard_parameters(stage: TransformerStage, mesh: DeviceMesh, precision: Precision) -> None:
    """Shard every block, then what is left of the stage, along ``mesh``; gradients are averaged over it."""
    dtype = getattr(torch, precision)
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for block in stage.blocks.values():
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    fully_shard(stage, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
