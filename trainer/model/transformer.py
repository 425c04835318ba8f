"""The decoder, divided into pipeline stages.

layers 8, stages 4      stage 0            stage 1     stage 2     stage 3
                        embedding 0 1      2 3         4 5         6 7 norm head loss

The name of a parameter contains the number of its layer in the whole model. So a parameter has the same name for every
number of stages. Its first values depend on its name, so they are the same too.
"""

import zlib

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from trainer.config import WIDENING, ModelConfig
from trainer.model.block import QKV, make_block


def next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean loss over all positions, in nats.

    ``logits`` [batch, sequence, vocab] may be a DTensor sharded over the vocabulary: then the caller is inside
    ``loss_parallel()`` and no rank ever holds a whole row. ``targets`` [batch, sequence] are whole on every rank.
    """
    loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
    return loss.full_tensor().clone() if isinstance(loss, DTensor) else loss  # fully_shard warns about a view


class TransformerStage(nn.Module):
    """Consecutive layers. The first stage also embeds tokens, the last stage also computes the loss."""

    def __init__(self, config: ModelConfig, *, stage: int, num_stages: int) -> None:
        super().__init__()
        first, last = stage == 0, stage == num_stages - 1
        per_stage = config.num_layers // num_stages
        layers = range(stage * per_stage, (stage + 1) * per_stage)
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size) if first else None
        self.blocks = nn.ModuleDict({str(layer): make_block(config) for layer in layers})
        self.norm = nn.LayerNorm(config.hidden_size, bias=False) if last else None
        self.head = nn.Linear(config.hidden_size, config.vocab_size, bias=False) if last else None

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """Map tokens [batch, sequence] (first stage) or hidden states [batch, sequence, hidden] to hidden states, or to
        the loss (last stage).

        All stages get the targets, because torch's pipeline passes the same keywords to all. Only the last uses them.
        """
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.blocks.values():
            x = block(x)
        if self.head is None:
            return x
        assert self.norm is not None
        assert targets is not None
        return next_token_loss(self.head(self.norm(x)), targets)


def by_heads(qkv: Tensor, up: Tensor, num_heads: int) -> Tensor:
    """The rows of two projections in the order of the fused projection: for each head its rows of ``qkv``, then its
    share of ``up``."""
    pairs = zip(qkv.chunk(num_heads), up.chunk(num_heads), strict=True)
    return torch.cat([rows for pair in pairs for rows in pair])


@torch.no_grad()
def initialise(stage: TransformerStage, config: ModelConfig, *, seed: int) -> None:
    """Fill every parameter, whole or sharded, from a generator seeded by its name. All grids get equal values."""
    for name, parameter in stage.named_parameters():
        whole = _first_values(name, parameter.shape, parameter.device, config, seed)
        if isinstance(parameter, DTensor):
            shard = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
            parameter.to_local().copy_(shard.to_local())
        else:
            parameter.copy_(whole)


def _first_values(name: str, shape: torch.Size, device: torch.device, config: ModelConfig, seed: int) -> Tensor:
    """The first values of a parameter. Norms are ones. Matrices are normal with variance 1 / inputs, which is divided
    by twice the number of layers if the output of the matrix is added to the residual.

    A fused projection begins with the values of the two projections that it replaces.
    """
    if name.endswith("norm.weight"):
        return torch.ones(shape, device=device)
    if name.endswith("qkv_up.weight"):
        hidden = config.hidden_size
        qkv = _first_values(
            name.replace("qkv_up", "attention.qkv"), torch.Size((QKV * hidden, hidden)), device, config, seed
        )
        up = _first_values(
            name.replace("qkv_up", "feed_forward.up"), torch.Size((WIDENING * hidden, hidden)), device, config, seed
        )
        return by_heads(qkv, up, config.num_heads)
    generator = torch.Generator(device).manual_seed(zlib.crc32(f"{seed}/{name}".encode()))
    deviation = shape[-1] ** -0.5
    if name.endswith(("out.weight", "down.weight")):
        deviation *= (2 * config.num_layers) ** -0.5
    return torch.empty(shape, device=device).normal_(std=deviation, generator=generator)
