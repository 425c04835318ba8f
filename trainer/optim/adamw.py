"""AdamW (Decoupled Weight Decay Regularization, arXiv 1711.05101)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer.config import OptimConfig
from trainer.optim.sharded import MOMENTS, ShardedOptimiser


class ShardedAdamW(ShardedOptimiser):
    """AdamW on this rank's own shards. It updates each element on its own, so it needs no other shards."""

    def __init__(self, modules: Sequence[nn.Module], config: OptimConfig) -> None:
        super().__init__(modules, config)
        groups = [
            {"params": [shard for shard in self._shards if shard.ndim > 1], "weight_decay": config.weight_decay},
            {"params": [shard for shard in self._shards if shard.ndim == 1], "weight_decay": 0.0},
        ]
        self._adamw = torch.optim.AdamW(groups, lr=config.learning_rate, betas=(config.beta1, config.beta2), fused=True)

    def resume_at(self, step: int) -> None:
        for shard in self._shards:
            self._adamw.state[shard]["step"].fill_(step)

    def _update(self, number: int, learning_rate: float) -> None:
        for group in self._adamw.param_groups:
            group["lr"] = learning_rate
        self._adamw.step()

    def _moments_of(self, shard: nn.Parameter) -> dict[str, Tensor]:
        state = self._adamw.state[shard]
        state.setdefault("step", torch.zeros((), device=shard.device))
        return {key: state.setdefault(key, torch.zeros_like(shard)) for key in MOMENTS}
