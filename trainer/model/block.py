"""MegaScale's parallel transformer block (arXiv 2402.15627, section 3.1): one norm, two branches, one sum.

serial      y = x + MLP(LN(x + Attn(LN(x))))
parallel    y = x + MLP(LN(x)) + Attn(LN(x))

The branches start from the same tensor and end in the same sum, so that under tensor + sequence parallelism a block
gathers once and scatters once where the serial block does both twice.

The attention is causal, with rotary positions, over a sliding window:

keys:    0 1 2 3 4 5 6 7        a window of 4: the sequence is cut into blocks of 4 queries, each of which looks
query 3  x x x x                at its own block and the one before it. The work grows with sequence x window,
query 5      x x x x            not with its square.
query 7          x x x x
"""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainer.config import ModelConfig

ROTARY_BASE = 10_000.0


class Attention(nn.Module):
    """Self-attention of as many heads as its (possibly sharded) projection holds.

    The joint projection lays out a head's query, key and value side by side, so that a shard of its rows is a set of
    whole heads.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_size = config.head_size
        self.window = config.window
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.out = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, sequence, hidden] to the same; every rank of a tensor-parallel group sees the whole sequence."""
        query, key, value = self.qkv(x).unflatten(-1, (-1, 3, self.head_size)).permute(3, 0, 2, 1, 4)
        cosine, sine = rotary_angles(x.shape[1], self.head_size, query.device, query.dtype)
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        heads = windowed_attention(query, key, value, window=self.window)
        out: Tensor = self.out(heads.transpose(1, 2).flatten(2))
        return out


@lru_cache(maxsize=8)
def rotary_angles(length: int, head_size: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each [length, head_size / 2] (RoFormer, arXiv 2104.09864, section 3.4)."""
    position = torch.arange(length, device=device, dtype=torch.float32)
    frequency = ROTARY_BASE ** (-torch.arange(0, head_size, 2, device=device, dtype=torch.float32) / head_size)
    angle = torch.outer(position, frequency)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn each pair (x[i], x[i + half]) of [batch, heads, sequence, head_size] by its position's angle."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)


def windowed_attention(query: Tensor, key: Tensor, value: Tensor, *, window: int) -> Tensor:
    """Each query sees the ``window`` newest keys up to its own; 0 or a window as long as the sequence: all of them.

    All tensors are [batch, heads, sequence, head_size]; the sequence divides by the window.
    """
    batch, _, length, _ = query.shape
    if window in (0, length):
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)
    blocks = length // window
    queries = torch.unflatten(query, 2, (blocks, window)).transpose(1, 2).flatten(0, 1)
    keys, values = (_with_block_before(x, window) for x in (key, value))
    seen = _band(batch, blocks, window, query.device)
    heads = F.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)
    return torch.unflatten(heads, 0, (batch, blocks)).transpose(1, 2).flatten(2, 3)


def _with_block_before(x: Tensor, window: int) -> Tensor:
    """[batch, heads, sequence, size] to [batch * blocks, heads, 2 * window, size]; zeros stand before the first."""
    pairs = F.pad(x, (0, 0, window, 0)).unfold(2, 2 * window, window)
    return pairs.permute(0, 2, 1, 4, 3).flatten(0, 1)


@lru_cache(maxsize=8)
def _band(batch: int, blocks: int, window: int, device: torch.device) -> Tensor:
    """Which key each query sees: [batch * blocks, 1, window, 2 * window]."""
    query = torch.arange(window, device=device)[:, None] + window
    key = torch.arange(2 * window, device=device)
    seen = (key <= query) & (key > query - window)
    real = key >= window * (torch.arange(blocks, device=device) == 0)[:, None, None]
    return (seen & real)[:, None].repeat(batch, 1, 1, 1)


class FeedForward(nn.Module):
    """Two matrices with a GELU between, four times as wide as the hidden size."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.hidden_size, 4 * config.hidden_size, bias=False)
        self.down = nn.Linear(4 * config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(F.gelu(self.up(x)))
        return out


class Branches(nn.Module):
    """Attention and feed-forward side by side; a module of its own so that both share one gather and one scatter."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.attention(x) + self.feed_forward(x)
        return out


class ParallelBlock(nn.Module):
    """[batch, sequence, hidden] to the same. Under sequence parallelism the sequence is this rank's piece."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size, bias=False)
        self.branches = Branches(config)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.branches(self.norm(x))
        return out
