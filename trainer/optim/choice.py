"""Makes the optimiser that the settings name."""

from collections.abc import Sequence

from torch import nn

from trainer.config import OptimConfig
from trainer.optim.adamw import ShardedAdamW
from trainer.optim.lamb import ShardedLamb
from trainer.optim.sharded import ShardedOptimiser


def make_optimiser(modules: Sequence[nn.Module], config: OptimConfig) -> ShardedOptimiser:
    """The optimiser of this rank's ``modules``, which are whole or sharded already."""
    return {"adamw": ShardedAdamW, "lamb": ShardedLamb}[config.optimizer](modules, config)
