"""LAMB (Large Batch Optimization for Deep Learning, arXiv 1904.00962, algorithm 2): Adam with a trust ratio for each
layer.

m, v       moments as in Adam, with bias correction
update     m / (sqrt(v) + epsilon) + weight_decay * w
w          w - learning_rate * ratio * update        ratio = |w| / |update|, over the whole layer

A layer is a parameter of the model. A rank holds a shard of it, so the squared norms of all layers are added over the
mesh dimensions along which the layers are sharded, in one small all-reduce for each dimension:

rank 0   |w|^2 of its shards --+
rank 1   |w|^2 of its shards --+--> sum along dp --> sum along tp --> ratios, equal on all ranks of a layer

As usual, norms (vectors) have no weight decay and the ratio 1. The ratio is also 1 where one of the norms is 0.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trainer.config import OptimConfig
from trainer.optim.sharded import MOMENTS, ShardedOptimiser, cut_dimensions

EPSILON = 1e-6


class ShardedLamb(ShardedOptimiser):
    """LAMB on this rank's own shards."""

    def __init__(self, modules: Sequence[nn.Module], config: OptimConfig) -> None:
        super().__init__(modules, config)
        self._moments = {shard: tuple(torch.zeros_like(shard) for _ in MOMENTS) for shard in self._shards}
        self._layers = [index for index, shard in enumerate(self._shards) if shard.ndim > 1]
        self._sums = _sums_over_ranks([self._parameters[index] for index in self._layers])

    def resume_at(self, step: int) -> None:
        """Nothing to do: the bias correction follows from the number of the step."""

    @torch.no_grad()
    def _update(self, number: int, learning_rate: float) -> None:
        shards: list[Tensor] = [shard.data for shard in self._shards]
        updates = self._adam_updates(number)
        layers = [shards[index] for index in self._layers]
        of_layers = [updates[index] for index in self._layers]
        torch._foreach_add_(of_layers, layers, alpha=self.config.weight_decay)
        torch._foreach_mul_(of_layers, list(self._trust_ratios(layers, of_layers)))
        torch._foreach_add_(shards, updates, alpha=-learning_rate)

    def _adam_updates(self, number: int) -> list[Tensor]:
        """The updates of Adam at step ``number``, which counts from 0; the moments are updated."""
        beta1, beta2 = self.config.beta1, self.config.beta2
        gradients = [torch.zeros_like(shard) if shard.grad is None else shard.grad for shard in self._shards]
        first, second = ([self._moments[shard][index] for shard in self._shards] for index in range(2))
        torch._foreach_lerp_(first, gradients, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - beta2)
        divisors = torch._foreach_sqrt(second)
        torch._foreach_div_(divisors, (1 - beta2 ** (number + 1)) ** 0.5)
        torch._foreach_add_(divisors, EPSILON)
        updates = torch._foreach_div(first, divisors)
        torch._foreach_div_(updates, 1 - beta1 ** (number + 1))
        return list(updates)

    def _trust_ratios(self, layers: list[Tensor], updates: list[Tensor]) -> Tensor:
        """The trust ratio of each layer, from the norms of the whole layer and of its whole update. No device sync."""
        if not layers:
            return torch.empty(0)
        squares = torch.stack([torch.stack(torch._foreach_norm(side)).square() for side in (layers, updates)])
        for group, indices in self._sums:
            sums = squares[:, indices]
            dist.all_reduce(sums, group=group)
            squares[:, indices] = sums
        weights, changes = squares.sqrt()
        return torch.where((weights > 0) & (changes > 0), weights / changes, torch.ones_like(weights))

    def _moments_of(self, shard: nn.Parameter) -> dict[str, Tensor]:
        return dict(zip(MOMENTS, self._moments[shard], strict=True))


def _sums_over_ranks(layers: Sequence[Tensor]) -> list[tuple[dist.ProcessGroup, list[int]]]:
    """For each dimension of the mesh, in the same order on all ranks: its group, and the indices of the layers that are
    sharded along it."""
    cut_along: dict[str, tuple[dist.ProcessGroup, list[int]]] = {}
    for index, layer in enumerate(layers):
        for dimension in cut_dimensions(layer):
            assert isinstance(layer, DTensor)
            mesh = layer.device_mesh
            assert mesh.mesh_dim_names is not None
            group = mesh.get_group(dimension)
            cut_along.setdefault(mesh.mesh_dim_names[dimension], (group, []))[1].append(index)
    return [cut_along[name] for name in sorted(cut_along)]
