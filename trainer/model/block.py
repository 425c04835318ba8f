"""The transformer block in its two forms (MegaScale, arXiv 2402.15627, section 3.1).

serial      y = z + MLP(LN(z)),  z = x + Attn(LN(x))      two norms, one branch after the other
parallel    y = x + MLP(LN(x)) + Attn(LN(x))              one norm, two branches, one sum

The branches of the parallel block start from the same tensor and end in the same sum. So under tensor and sequence
parallelism the parallel block gathers once and scatters once, where the serial block does both twice.

Both branches begin with a projection of the same tensor. The fused projection makes one matrix product of the two. Its
rows are sorted by head, so that a shard of them holds whole heads and the units of the MLP that ``down`` expects there:

rows        q0 k0 v0 u0 u0 u0 u0 | q1 k1 v1 u1 u1 u1 u1 | ...      a letter is one head size; u: units of the MLP
"""

from abc import ABC, abstractmethod

import torch.nn.functional as F
from torch import Tensor, nn

from trainer.choices import Recompute
from trainer.config import WIDENING, ModelConfig
from trainer.model.attention import attend
from trainer.model.recompute import kept

QKV = 3


class AttentionOutput(nn.Module):
    """Attention of projected heads, and its output matrix."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_size = config.head_size
        self.window = config.window
        self.out = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, heads: Tensor) -> Tensor:
        """Map [batch, sequence, heads, 3, head_size] to [batch, sequence, hidden], for all heads or those of this
        rank."""
        out: Tensor = self.out(attend(heads, window=self.window))
        return out


class Attention(AttentionOutput):
    """Self-attention of as many heads as its (possibly sharded) projection holds.

    The joint projection lays out a head's query, key and value side by side, so that a shard of its rows is a set of
    whole heads.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.qkv = nn.Linear(config.hidden_size, QKV * config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, sequence, hidden] to the same shape. Every rank of a tensor group gets the whole sequence."""
        return super().forward(self.qkv(x).unflatten(-1, (-1, QKV, self.head_size)))


class FeedForwardOutput(nn.Module):
    """GELU and the matrix back to the hidden size."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.down = nn.Linear(WIDENING * config.hidden_size, config.hidden_size, bias=False)

    def forward(self, units: Tensor) -> Tensor:
        """Map [batch, sequence, 4 * hidden] to [batch, sequence, hidden]."""
        out: Tensor = self.down(F.gelu(units))
        return out


class FeedForward(FeedForwardOutput):
    """Two matrices with a GELU between, four times as wide as the hidden size."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.up = nn.Linear(config.hidden_size, WIDENING * config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map [batch, sequence, hidden] to the same shape."""
        return super().forward(self.up(x))


class Branches(nn.Module):
    """Attention and feed-forward side by side. They are one module, so that they share one gather and one scatter."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.attention(x) + self.feed_forward(x)
        return out


class FusedBranches(nn.Module):
    """The same as :class:`Branches`, with one projection for both branches."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_size = config.head_size
        self.qkv_up = nn.Linear(config.hidden_size, (QKV + WIDENING) * config.hidden_size, bias=False)
        self.attention = AttentionOutput(config)
        self.feed_forward = FeedForwardOutput(config)

    def forward(self, x: Tensor) -> Tensor:
        projected = self.qkv_up(x).unflatten(-1, (-1, QKV + WIDENING, self.head_size))
        heads, units = projected.split((QKV, WIDENING), dim=-2)
        out: Tensor = self.attention(heads) + self.feed_forward(units.flatten(-3))
        return out


class Block(nn.Module, ABC):
    """Maps [batch, sequence, hidden] to the same shape. Under sequence parallelism the sequence is this rank's part."""

    gathered: tuple[str, ...]
    """Submodules that need the whole sequence: the gather is before and the scatter after each."""

    recompute: Recompute = "none"

    def forward(self, x: Tensor) -> Tensor:
        return kept(self.residual, x, recompute=self.recompute)

    @abstractmethod
    def residual(self, x: Tensor) -> Tensor:
        """The output of the block for ``x``, without regard to what is kept for the backward."""


class ParallelBlock(Block):
    """Attention and feed-forward layer on the result of one norm. Their outputs are added in one sum."""

    gathered = ("branches",)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size, bias=False)
        self.branches = FusedBranches(config) if config.fused_projection else Branches(config)

    def residual(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.branches(self.norm(x))
        return out


class SerialBlock(Block):
    """The attention first, then the feed-forward layer on its result."""

    gathered = ("attention", "feed_forward")

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden_size, bias=False)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size, bias=False)
        self.feed_forward = FeedForward(config)

    def residual(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        out: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return out


def make_block(config: ModelConfig) -> Block:
    """A block of the form that ``config`` names."""
    return SerialBlock(config) if config.block == "serial" else ParallelBlock(config)
