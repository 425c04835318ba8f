"""Tensor and sequence parallelism with communication beside the projections.

A rank has its own part of the sequence before the gather, and needs only its own part after the scatter. So it
multiplies its own part while the other parts are transferred:

forward    |------ gather ------|                                  |----- scatter -----|
           own: qkv, up          others: qkv, up  attention  others: out, down   own: out, down    + own
backward   |------ gather of the output's gradient ------| ...     |----- scatter -----|
           own: out, down        others: out, down  attention  others: qkv, up   own: qkv, up      + own

The collectives are those of ``tensor.py`` with the same sizes. Sums have another order, so results differ by rounding.
Autograd runs the backward in the reverse order of the forward. So in the backward, ``End`` of an operation issues the
mirrored operation, and ``Begin`` waits for it (MegaScale, arXiv 2402.15627, section 3.2).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
"""torch 2.13 renamed both functions."""
Start = Callable[[Tensor, dist.ProcessGroup], tuple[dist.Work, Tensor]]


def begin_gather(own: Tensor, group: dist.ProcessGroup) -> tuple[dist.Work, Tensor]:
    """Gather [batch, part, width] of each rank to [ranks, batch, part, width]. The result is readable after the
    wait."""
    gathered = own.new_empty((group.size(), *own.shape))
    return all_gather(gathered.flatten(0, 1), own, group=group, async_op=True), gathered


def begin_scatter(parts: Tensor, group: dist.ProcessGroup) -> tuple[dist.Work, Tensor]:
    """Sum [ranks, batch, part, width] over the ranks. Each rank keeps its own part [batch, part, width]."""
    own = parts.new_empty(parts.shape[1:])
    return reduce_scatter(own, parts.flatten(0, 1), group=group, async_op=True), own


class Transfer:
    """A collective of the forward, and the mirrored collective of the backward. ``Begin`` and ``End`` share this."""

    def __init__(self, begin: Start, mirrored: Start, group: dist.ProcessGroup) -> None:
        self._begin = begin
        self._mirrored = mirrored
        self._group = group
        self._running: tuple[dist.Work, Tensor, Tensor] | None = None
        """The operation, its result, and its input, which must live until the wait."""

    @staticmethod
    def gather(group: dist.ProcessGroup) -> "Transfer":
        return Transfer(begin_gather, begin_scatter, group)

    @staticmethod
    def scatter(group: dist.ProcessGroup) -> "Transfer":
        return Transfer(begin_scatter, begin_gather, group)

    def begin(self, x: Tensor) -> Tensor:
        """Issue the collective of the forward. Its result is not readable before :meth:`wait`."""
        return self._issue(self._begin, x)

    def begin_mirrored(self, gradient: Tensor) -> None:
        """Issue the collective of the backward."""
        self._issue(self._mirrored, gradient)

    def wait(self) -> Tensor:
        """Wait for the collective that was issued last, and return its result."""
        assert self._running is not None
        work, result, _ = self._running
        work.wait()
        self._running = None
        return result

    def _issue(self, begin: Start, x: Tensor) -> Tensor:
        x = x.contiguous()
        work, result = begin(x, self._group)
        self._running = work, result, x
        return result


class Begin(torch.autograd.Function):
    """Issues a transfer. Its result is not readable before :class:`End`. Backward: waits for the mirrored transfer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, transfer: Transfer) -> Tensor:
        ctx.transfer = transfer
        return transfer.begin(x)

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        return ctx.transfer.wait(), None


class End(torch.autograd.Function):
    """Waits for a transfer. Backward: issues the mirrored transfer."""

    @staticmethod
    def forward(ctx: Any, result: Tensor, transfer: Transfer) -> Tensor:
        ctx.transfer = transfer
        transfer.wait()
        return result.view_as(result)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.transfer.begin_mirrored(gradient)
        return gradient, None


class Gathered:
    """The input of column-parallel projections: a rank's own part of the sequence, and the parts of other ranks.

    The constructor starts the gather, lets all projections multiply the own part, and then waits for the gather.
    """

    def __init__(self, own: Tensor, projections: Sequence[nn.Linear], group: dist.ProcessGroup) -> None:
        gather = Transfer.gather(group)
        self._index = group.rank()
        self._weights = {projection: _local(projection.weight) for projection in projections}
        gathered = Begin.apply(own, gather)  # type: ignore[no-untyped-call]
        self._own = {projection: F.linear(own, weight) for projection, weight in self._weights.items()}
        self._parts = End.apply(gathered, gather).unbind(0)  # type: ignore[no-untyped-call]
        self.shape = torch.Size((own.shape[0], own.shape[1] * group.size(), own.shape[2]))

    def times(self, projection: nn.Linear) -> Tensor:
        """The projection of the whole sequence, [batch, sequence, columns of this rank]."""
        products = [
            self._own[projection] if index == self._index else F.linear(part, self._weights[projection])
            for index, part in enumerate(self._parts)
        ]
        return torch.cat(products, dim=1)


class PartialSum:
    """The output of row-parallel projections whose matrix products are not computed yet. If the outputs of several
    projections are added, their products are computed in one operation."""

    def __init__(self, factors: Sequence[tuple[Tensor, Tensor]]) -> None:
        self._factors = factors
        """Input [batch, sequence, rows of this rank] and weight of each projection."""

    def __add__(self, other: "PartialSum") -> "PartialSum":
        return PartialSum([*self._factors, *other._factors])

    def scattered(self, group: dist.ProcessGroup) -> Tensor:
        """This rank's part of the sequence, summed over the ranks."""
        cut = [(x.chunk(group.size(), dim=1), weight) for x, weight in self._factors]

        def part(index: int) -> Tensor:
            products = [F.linear(chunks[index], weight) for chunks, weight in cut]
            return sum(products[1:], start=products[0])

        others = {index: part(index) for index in range(group.size()) if index != group.rank()}
        nothing = torch.zeros_like(next(iter(others.values())))
        scatter = Transfer.scatter(group)
        partial_sums = torch.stack([others.get(index, nothing) for index in range(group.size())])
        moving = Begin.apply(partial_sums, scatter)  # type: ignore[no-untyped-call]
        own = part(group.rank())
        summed: Tensor = End.apply(moving, scatter)  # type: ignore[no-untyped-call]
        return summed + own


class OverlappedProjections(ParallelStyle):
    """Shards the projections of a module whose input and output are parts of the sequence.

    Args:
        columns: names of the projections that multiply the module's input.
        rows: names of the projections whose outputs add up to the module's output.
    """

    def __init__(self, *, columns: Sequence[str], rows: Sequence[str]) -> None:
        super().__init__()
        self._columns = columns
        self._rows = rows

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        group = device_mesh.get_group()
        columns = [_cut(module.get_submodule(name), device_mesh, dim=0) for name in self._columns]
        rows = [_cut(module.get_submodule(name), device_mesh, dim=1) for name in self._rows]
        for projection in columns:
            projection.forward = partial(_multiply_columns, projection)  # type: ignore[method-assign]
        for projection in rows:
            projection.forward = partial(_hold_rows, projection)  # type: ignore[method-assign, assignment]
        module.register_forward_pre_hook(lambda _, inputs: (Gathered(_local(inputs[0]), columns, group),))
        module.register_forward_hook(lambda _, __, output: output.scattered(group))
        return module


def _multiply_columns(projection: nn.Linear, x: Gathered) -> Tensor:
    return x.times(projection)


def _hold_rows(projection: nn.Linear, x: Tensor) -> PartialSum:
    return PartialSum([(x, _local(projection.weight))])


def _cut(projection: nn.Module, mesh: DeviceMesh, *, dim: int) -> nn.Linear:
    assert isinstance(projection, nn.Linear)
    weight = distribute_tensor(projection.weight, mesh, [Shard(dim)], src_data_rank=None)
    projection.register_parameter("weight", nn.Parameter(weight))
    return projection


def _local(x: Tensor) -> Tensor:
    return x.to_local() if isinstance(x, DTensor) else x
