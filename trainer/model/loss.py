"""Cross-entropy of the next token."""

import torch.nn.functional as F
from torch import Tensor
from torch.distributed.tensor import DTensor


def next_token_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean over all positions, in nats.

    ``logits`` [batch, sequence, vocab] may be a DTensor sharded over the vocabulary: then the caller is inside
    ``loss_parallel()`` and no rank ever holds a whole row. ``targets`` [batch, sequence] are whole on every rank.
    """
    loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
    return loss.full_tensor().clone() if isinstance(loss, DTensor) else loss  # a view would worry fully_shard
