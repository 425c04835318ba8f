"""What a block keeps for its backward, and what the backward computes again.

bytes for each token, in hidden sizes of the compute precision, of a parallel block without tensor parallelism:

none         block input 1, norm 1, projection of attention 3, rotated query and key 2, attention 1, up 4, GELU 4
selective    block input 1, attention 1, up 4          computed again: norm, projection of attention, rotation, GELU
full         block input 1                             computed again: everything

The selective form keeps what takes the most time for its size. The result of attention is small and takes long to
compute. Of the matrix products only the widest is kept; those of attention are computed again. Under tensor
parallelism, sums over ranks are kept, so that they are not repeated. Gathers are repeated: their result is as large as
all shards together.

Reducing Activation Recomputation in Large Transformer Models (arXiv 2205.05198) keeps more and recomputes attention.
There, attention keeps its scores, which are large. The attention of this trainer keeps none, so its result is kept.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.flex_attention import flex_attention as flex_attention_operator
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from trainer.choices import Recompute
from trainer.config import WIDENING
from trainer.model.attention import WINDOW_OPERATOR

aten = torch.ops.aten
KEPT_OPERATORS = {
    WINDOW_OPERATOR,
    flex_attention_operator,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
}
MATRIX_PRODUCTS = (aten.mm.default, aten._scaled_mm.default)


def kept(compute: Callable[[Tensor], Tensor], x: Tensor, *, recompute: Recompute) -> Tensor:
    """``compute(x)``, with the activations for its backward kept as ``recompute`` says."""
    if recompute == "none" or not torch.is_grad_enabled():
        return compute(x)
    options: dict[str, Any] = {"use_reentrant": False, "preserve_rng_state": False}
    if recompute == "selective":
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    out: Tensor = checkpoint(compute, x, **options)
    return out


def _policy(context: object, operator: Any, *arguments: Any, **keywords: Any) -> CheckpointPolicy:
    wide = operator in MATRIX_PRODUCTS and arguments[1].shape[1] == WIDENING * arguments[1].shape[0]
    return CheckpointPolicy.MUST_SAVE if wide or operator in KEPT_OPERATORS else CheckpointPolicy.PREFER_RECOMPUTE
