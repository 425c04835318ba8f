"""MegaScale's parallel transformer block (arXiv 2402.15627, section 3.1): one norm, two branches, one sum.

serial      y = x + MLP(LN(x + Attn(LN(x))))
parallel    y = x + MLP(LN(x)) + Attn(LN(x))

The branches start from the same tensor and end in the same sum, so that under tensor + sequence parallelism a block
gathers once and scatters once where the serial block does both twice.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from trainer.config import ModelConfig
from trainer.model.attention import Attention


class FeedForward(nn.Module):
    """Two matrices with a GELU between, four times as wide as the hidden size."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.hidden_size, 4 * config.hidden_size, bias=False)
        self.down = nn.Linear(4 * config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class Branches(nn.Module):
    """Attention and feed-forward side by side; a module of its own so that both share one gather and one scatter."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x) + self.feed_forward(x)


class ParallelBlock(nn.Module):
    """[batch, sequence, hidden] to the same. Under sequence parallelism the sequence is this rank's piece."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size, bias=False)
        self.branches = Branches(config)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branches(self.norm(x))
