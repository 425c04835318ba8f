"""Causal attention with rotary positions, over all earlier keys or over a sliding window.

keys       0 1 2 3 4 5 6 7        window 4, blocks of 2 queries: a block reads the keys from the first that its first
query 4    . x x x x              query sees to its own last. Of window + 1 keys, only those at the two edges are
query 5    . . x x x x            masked. The work grows with sequence x window, not with the square of the sequence.

On a GPU, FlexAttention with a block mask computes the same. It also skips blocks that no query sees.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
ROTARY_BASE = 10_000.0
BLOCK = 64
"""Queries in a block. A larger block has fewer and larger matrix products, and masks more keys."""
_MASKS: dict[tuple[int, int, torch.device], BlockMask] = {}
"""The masks that :func:`window_mask` has computed, by its arguments."""


def attend(heads: Tensor, *, window: int) -> Tensor:
    """Attention of ``heads`` [batch, sequence, heads, 3, head_size], which are query, key and value of each head.

    Returns [batch, sequence, heads * head_size].
    """
    query, key, value = heads.permute(3, 0, 2, 1, 4)
    cosine, sine = rotary_angles(query.shape[2], query.shape[3], query.device, query.dtype)
    query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
    return windowed_attention(query, key, value, window=window).transpose(1, 2).flatten(2)


def constant(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Compute a result once for the same arguments. Compiled code takes it as a constant."""
    cached = lru_cache(maxsize=8)(function)

    @wraps(function)
    def call(*arguments: Arguments.args, **keywords: Arguments.kwargs) -> Result:
        return cached(*arguments, **keywords)  # type: ignore[arg-type]

    return torch.compiler.assume_constant_result(call)  # type: ignore[no-any-return, no-untyped-call]


@constant
def rotary_angles(length: int, head_size: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each [length, head_size / 2] (RoFormer, arXiv 2104.09864, section 3.4)."""
    position = torch.arange(length, device=device, dtype=torch.float32)
    frequency = ROTARY_BASE ** (-torch.arange(0, head_size, 2, device=device, dtype=torch.float32) / head_size)
    angle = torch.outer(position, frequency)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate each pair (x[i], x[i + half]) of [batch, heads, sequence, head_size] by the angle of its position."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)


def windowed_attention(query: Tensor, key: Tensor, value: Tensor, *, window: int) -> Tensor:
    """Attention in which a query sees the ``window`` newest keys, including its own. It sees all earlier keys if
    ``window`` is 0 or at least the length of the sequence.

    All tensors are [batch, heads, sequence, head_size].
    """
    length = query.shape[2]
    if window == 0 or window >= length:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)
    if query.device.type == "cuda":
        flexible = flex_attention if torch.compiler.is_compiling() else _compiled_flex()
        output: Tensor = flexible(query, key, value, block_mask=window_mask(length, window, query.device))
    else:
        output = blocked_attention(query, key, value, window)
    return output


@lru_cache(maxsize=1)
def _compiled_flex() -> Any:
    """FlexAttention, compiled. Without compilation it would compute all pairs of queries and keys."""
    return torch.compile(flex_attention)


def window_mask(length: int, window: int, device: torch.device) -> BlockMask:
    """The mask of a sliding window, for FlexAttention. It is computed once for the same arguments.

    Call it before a block is compiled, so that compiled code finds the mask in ``_MASKS``. torch cannot compile
    FlexAttention with a mask that a ``constant`` function returns.
    """
    arguments = length, window, device
    if arguments not in _MASKS:
        _MASKS[arguments] = _computed_mask(length, window, device)
    return _MASKS[arguments]


def _computed_mask(length: int, window: int, device: torch.device) -> BlockMask:
    def seen(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key <= query) & (key > query - window)

    return create_block_mask(seen, B=None, H=None, Q_LEN=length, KV_LEN=length, device=device.type)


@torch.library.custom_op("rankscope::window_attention", mutates_args=())
def blocked_attention(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    """Exact attention over a window, block by block. It is registered as an operator, so that compilation does not
    unroll its loop and recomputation can keep its result.
    """
    rows_of_query, key, value = _for_products(query, key, value)
    output = rows_of_query.new_empty(rows_of_query.shape)
    for rows, columns, band in _blocks(query.shape[2], window, query.device):
        weights = _weights(rows_of_query[:, rows], key[:, columns], band)
        output[:, rows] = torch.bmm(weights, value[:, columns])
    return output.view(query.shape).to(query.dtype)


@torch.library.custom_op("rankscope::window_attention_backward", mutates_args=())
def _blocked_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, window: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value. The weights are computed again instead of being kept (FlashAttention, arXiv
    2205.14135, section 3.1)."""
    shape, dtype = query.shape, query.dtype
    gradient, query, key, value = _for_products(gradient, query, key, value)
    scale = shape[-1] ** -0.5
    of_query, of_key, of_value = (side.new_zeros(side.shape) for side in (query, key, value))
    for rows, columns, band in _blocks(shape[2], window, query.device):
        weights = _weights(query[:, rows], key[:, columns], band)
        of_value[:, columns].baddbmm_(weights.mT, gradient[:, rows])
        of_weights = torch.bmm(gradient[:, rows], value[:, columns].mT)
        of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
        of_query[:, rows] = torch.bmm(of_scores, key[:, columns]).mul_(scale)
        of_key[:, columns].baddbmm_(of_scores.mT, query[:, rows], alpha=scale)
    of_query, of_key, of_value = (side.view(shape).to(dtype) for side in (of_query, of_key, of_value))
    return of_query, of_key, of_value


def _for_products(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors as [batch * heads, sequence, head_size], with at least the precision of float32."""
    return tuple(side.to(torch.promote_types(side.dtype, torch.float32)).flatten(0, 1) for side in tensors)


def _weights(query: Tensor, key: Tensor, band: Tensor) -> Tensor:
    """The attention weights of each query over the keys of its block. ``band`` limits them to the window of the
    query."""
    band = band.to(query.dtype)
    return torch.baddbmm(band, query, key.mT, alpha=query.shape[-1] ** -0.5).softmax(-1)


def _blocks(length: int, window: int, device: torch.device) -> list[tuple[slice, slice, Tensor]]:
    """For each block: its queries, the keys that at least one of its queries sees, and the band to add to the
    scores."""
    band = _band(window, device)
    blocks = []
    for begin in range(0, length, BLOCK):
        end, first = min(begin + BLOCK, length), begin + 1 - window
        shown = max(first, 0)
        blocks.append((slice(begin, end), slice(shown, end), band[: end - begin, shown - first : end - first]))
    return blocks


@lru_cache(maxsize=8)
def _band(window: int, device: torch.device) -> Tensor:
    """The band [BLOCK, window + BLOCK - 1]: 0 where query ``i`` sees key ``j``, with ``j`` from ``i`` to
    ``i + window - 1``, and minus infinity elsewhere."""
    distance = torch.arange(window + BLOCK - 1, device=device) - torch.arange(BLOCK, device=device)[:, None]
    seen = (distance >= 0) & (distance < window)
    return torch.zeros(seen.shape, device=device).masked_fill_(~seen, float("-inf"))


@blocked_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, window: int) -> Tensor:
    return query.new_empty(query.shape)


@_blocked_backward.register_fake
def _(gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, window: int) -> tuple[Tensor, Tensor, Tensor]:
    of_query, of_key, of_value = (side.new_empty(side.shape) for side in (query, key, value))
    return of_query, of_key, of_value


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, int], output: Tensor) -> None:
    *tensors, ctx.window = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
    return *_blocked_backward(gradient, *ctx.saved_tensors, ctx.window), None


blocked_attention.register_autograd(_backward, setup_context=_keep)
WINDOW_OPERATOR = torch.ops.rankscope.window_attention.default
