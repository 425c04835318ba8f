"""The common part of optimisers over shards: gradients, their norm over the whole grid, and the moments by name."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from trainer.config import OptimConfig
from trainer.optim.schedule import learning_rate_at

SMALL = 1e-6
MOMENTS = ("exp_avg", "exp_avg_sq")
"""Names of the moments in a checkpoint."""


class ShardedOptimiser(ABC):
    """An optimiser on this rank's own shards, with two moments.

    It uses plain tensors, without the cost of DTensor dispatch. Weight decay applies to matrices, not to norms.
    """

    def __init__(self, modules: Sequence[nn.Module], config: OptimConfig) -> None:
        self.config = config
        named = [pair for module in modules for pair in module.named_parameters()]
        self._names = [name for name, _ in named]
        self._parameters = [parameter for _, parameter in named]
        self._shards = [nn.Parameter(_local(parameter).detach()) for parameter in self._parameters]

    def take_gradients(self) -> list[Tensor]:
        """Use this rank's parts of the gradients in the modules for the next update. Returns those that have elements:
        a small parameter may have none on this rank."""
        for parameter, shard in zip(self._parameters, self._shards, strict=True):
            gradient = parameter.grad
            if isinstance(gradient, DTensor):
                assert isinstance(parameter, DTensor)
                gradient = gradient.redistribute(placements=parameter.placements).to_local()
            shard.grad = gradient
        return self._gradients()

    def square_sum(self) -> Tensor:
        """This rank's part of the squared gradient norm of the whole model. The parts of all ranks add up to that norm.

        If several ranks hold the same gradient, such as that of a LayerNorm along tp, each counts its share of it. Call
        :meth:`take_gradients` before.
        """
        shares = [_copies(parameter) ** -0.5 for parameter, shard in self._pairs()]
        norms = torch._foreach_norm(self._gradients())
        torch._foreach_mul_(norms, shares)
        return torch.stack(norms).square().sum() if norms else torch.zeros(())

    def clip(self, norm: Tensor) -> None:
        """Scale all gradients so that their norm is at most ``max_gradient_norm``. ``norm``: their norm before this
        call. No device sync."""
        if self.config.max_gradient_norm:
            scale = (self.config.max_gradient_norm / (norm + SMALL)).clamp(max=1.0)
            torch._foreach_mul_(self._gradients(), scale)

    def _gradients(self) -> list[Tensor]:
        return [shard.grad for _, shard in self._pairs() if shard.grad is not None]

    def step(self, number: int) -> None:
        """Update the parameters with the learning rate of step ``number``, and drop the gradients."""
        self._update(number, learning_rate_at(number, self.config))
        for parameter, shard in zip(self._parameters, self._shards, strict=True):
            parameter.grad = shard.grad = None

    def moments(self) -> dict[str, Tensor]:
        """``NAME.exp_avg`` and ``NAME.exp_avg_sq`` of every parameter, sharded like the parameter.

        The tensors are those that the optimiser updates. They are 0 before the first step.
        """
        moments = {}
        for name, parameter, shard in zip(self._names, self._parameters, self._shards, strict=True):
            for key, moment in self._moments_of(shard).items():
                moments[f"{name}.{key}"] = _cut_like(parameter, moment)
        return moments

    @abstractmethod
    def resume_at(self, step: int) -> None:
        """Continue after ``step`` steps. The caller has already loaded the moments of that step."""

    @abstractmethod
    def _update(self, number: int, learning_rate: float) -> None:
        """Update the shards by their gradients, in step ``number``, which counts from 0."""

    @abstractmethod
    def _moments_of(self, shard: nn.Parameter) -> dict[str, Tensor]:
        """The moments of a shard by the names in ``MOMENTS``."""

    def _pairs(self) -> list[tuple[nn.Parameter, nn.Parameter]]:
        pairs = zip(self._parameters, self._shards, strict=True)
        return [(parameter, shard) for parameter, shard in pairs if shard.grad is not None and shard.grad.numel()]


def add_over_ranks(values: Tensor) -> Tensor:
    """Add ``values`` over all ranks of the job, in place, and return them."""
    if dist.get_world_size() > 1:
        dist.all_reduce(values)
    return values


def _local(parameter: Tensor) -> Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _cut_like(parameter: Tensor, shard: Tensor) -> Tensor:
    """``shard`` as the local part of a DTensor with the placements of ``parameter``."""
    if not isinstance(parameter, DTensor):
        return shard
    return DTensor.from_local(
        shard,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def _copies(parameter: Tensor) -> int:
    """Number of ranks with the same shard."""
    if not isinstance(parameter, DTensor):
        return 1
    sizes = parameter.device_mesh.shape
    return parameter.device_mesh.size() // math.prod(sizes[dimension] for dimension in cut_dimensions(parameter))


def cut_dimensions(parameter: Tensor) -> list[int]:
    """The dimensions of the parameter's mesh along which ranks hold different shards."""
    if not isinstance(parameter, DTensor):
        return []
    return [dimension for dimension, placement in enumerate(parameter.placements) if placement != Replicate()]
