"""The model and its training written the short way: the reference for every technique of the trainer.

No sharding, no shared projection, attention as the masked square of all scores, torch's own AdamW.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from trainer.config import ModelConfig

LEARNING_RATE = 3e-3
Batch = tuple[Tensor, Tensor]


def made_batches(config: ModelConfig, *, count: int, size: int = 4) -> list[Batch]:
    """Tokens and targets, always the same."""
    generator = torch.Generator().manual_seed(1)
    shape = (count, size, config.sequence_length + 1)
    tokens = torch.randint(config.vocab_size, shape, generator=generator) // 4
    return [(text[:, :-1], text[:, 1:]) for text in tokens]


def plain_losses(first: Mapping[str, Tensor], config: ModelConfig, batches: Sequence[Batch]) -> list[float]:
    """Losses of a training that begins with the parameters ``first``, by name as in ``TransformerStage``."""
    weights = {name: value.detach().clone().requires_grad_() for name, value in first.items()}
    optimiser = torch.optim.AdamW(weights.values(), lr=LEARNING_RATE, weight_decay=0.0)
    losses = []
    for tokens, targets in batches:
        loss = F.cross_entropy(plain_logits(weights, config, tokens).flatten(0, 1), targets.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def plain_logits(weights: Mapping[str, Tensor], config: ModelConfig, tokens: Tensor) -> Tensor:
    """[batch, sequence] to [batch, sequence, vocabulary]."""
    x = weights["embedding.weight"][tokens]
    for layer in range(config.num_layers):
        block = f"blocks.{layer}"
        if config.block == "serial":
            x = x + _attention(
                weights, f"{block}.attention", _norm(x, weights[f"{block}.attention_norm.weight"]), config
            )
            x = x + _mlp(weights, f"{block}.feed_forward", _norm(x, weights[f"{block}.feed_forward_norm.weight"]))
        else:
            normed = _norm(x, weights[f"{block}.norm.weight"])
            attention = _attention(weights, f"{block}.branches.attention", normed, config)
            x = x + attention + _mlp(weights, f"{block}.branches.feed_forward", normed)
    return _norm(x, weights["norm.weight"]) @ weights["head.weight"].T


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight)


def _mlp(weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    return F.gelu(x @ weights[f"{name}.up.weight"].T) @ weights[f"{name}.down.weight"].T


def _attention(weights: Mapping[str, Tensor], name: str, x: Tensor, config: ModelConfig) -> Tensor:
    heads = (x @ weights[f"{name}.qkv.weight"].T).unflatten(-1, (config.num_heads, 3, config.head_size))
    query, key, value = heads.permute(3, 0, 2, 1, 4)
    length = x.shape[1]
    distance = torch.arange(length)[:, None] - torch.arange(length)
    scores = _turned(query) @ _turned(key).mT / config.head_size**0.5
    scores = scores.masked_fill((distance < 0) | (distance >= (config.window or length)), float("-inf"))
    out = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
    return out @ weights[f"{name}.out.weight"].T


def _turned(x: Tensor) -> Tensor:
    """Rotary positions as products of complex numbers."""
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(x.shape[-2]), 10_000.0 ** (-torch.arange(half) / half))
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((turned.real, turned.imag), dim=-1)
