"""Matrix products in float8, with one scale for each tensor, computed from its largest value at each use.

               forward                          backward
input  e4m3  --+                  gradient e5m2 --+--> gradient of the input
weight e4m3  --+--> output        weight   e4m3 --+
                                  gradient e5m2 --+--> gradient of the weight
                                  input    e4m3 --+

Formats: FP8 Formats for Deep Learning (arXiv 2209.05433). The backward keeps the input in float8: half the bytes of
bfloat16. Sums are float32 and results bfloat16.
"""

from typing import Any

import torch
from torch import Tensor, nn

from telemetry.errors import UsageError

SMALLEST = 1e-12
MULTIPLE = 16
"""The hardware requires that each side of a matrix is a multiple of this number."""


def check_float8(device: torch.device) -> None:
    """Return if the device multiplies float8 matrices.

    Raises:
        UsageError: it does not.
    """
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 9):
        raise UsageError(
            f"{torch.cuda.get_device_name(device)} has no float8 matrix products",
            hint="use --precision bfloat16, or a GPU of compute capability 8.9 or higher, such as an H100",
        )


class Float8Linear(nn.Linear):
    """A linear layer without bias that multiplies in float8. The precision of the stored weights does not change."""

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., inputs] to [..., outputs], in bfloat16."""
        product: Tensor = _Product.apply(x.flatten(0, -2), self.weight)  # type: ignore[no-untyped-call]
        return product.view(*x.shape[:-1], -1)


def use_float8(module: nn.Module) -> None:
    """Let every linear layer in ``module`` multiply in float8. Names and weights stay."""
    for part in module.modules():
        if type(part) is nn.Linear:
            part.__class__ = Float8Linear


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        x8, x_scale = _quantised(x, torch.float8_e4m3fn)
        weight8, weight_scale = _quantised(weight, torch.float8_e4m3fn)
        ctx.save_for_backward(x8, x_scale, weight)
        ctx.dtypes = x.dtype, weight.dtype
        return _multiply(x8, x_scale, weight8.t(), weight_scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x8, x_scale, weight = ctx.saved_tensors
        gradient8, gradient_scale = _quantised(gradient, torch.float8_e5m2)
        weight8, weight_scale = _quantised(weight, torch.float8_e4m3fn)
        of_x = _multiply(gradient8, gradient_scale, weight8, weight_scale)
        of_weight = _multiply(gradient8.t(), gradient_scale, x8, x_scale)
        return of_x.to(ctx.dtypes[0]), of_weight.to(ctx.dtypes[1])


def _quantised(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """``x`` in ``dtype``, divided by a scale so that its largest value is the largest of ``dtype``, and the float32
    scale."""
    scale = (x.abs().amax().float() / torch.finfo(dtype).max).clamp(min=SMALLEST)
    return (x.float() / scale).to(dtype), scale


def _multiply(left: Tensor, left_scale: Tensor, right: Tensor, right_scale: Tensor) -> Tensor:
    """The matrix product. The hardware reads the left matrix by rows and the right one by columns."""
    by_columns = right.t().contiguous().t()
    return torch._scaled_mm(left.contiguous(), by_columns, left_scale, right_scale, out_dtype=torch.bfloat16)
