"""Matrix products: how fast, and whether the same product is the same each time.

A part that computes wrongly now and then (silent data corruption) gives another result for the same input. One that
computes wrongly each time in the same way is not seen.
"""

from collections.abc import Callable

import torch

from diagnose.nodecheck.devices import is_gpu, kind_of, synchronize
from diagnose.nodecheck.result import CheckResult, failed, measured, rates

CHECK = "gemm"
SEED = 20
Multiply = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]


def run(*, device: str, measure_s: float, size: int | None = None, multiply: Multiply | None = None) -> CheckResult:
    """TFLOP/s of square products, bf16 on a GPU and fp32 on a CPU; failed when two differ in a bit.

    ``multiply(a, b, out)`` stands in for the product; for what it does wrong, in tests.
    """
    size = size or (8192 if is_gpu(device) else 1024)
    dtype = torch.bfloat16 if is_gpu(device) else torch.float32
    multiply = multiply or (lambda a, b, out: torch.mm(a, b, out=out))
    torch.manual_seed(SEED)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    first, again = torch.empty_like(a), torch.empty_like(a)
    multiply(a, b, first)
    unequal = []

    def repeat() -> None:
        multiply(a, b, again)
        synchronize(device)

    def repeat_and_compare() -> None:
        repeat()
        unequal.append(not torch.equal(again, first))

    rates(repeat_and_compare, 1.0, measure_s / 2)
    if any(unequal):
        return failed(CHECK, device, f"the same product differed in {sum(unequal)} of {len(unequal)} repetitions")
    samples = rates(repeat, 2 * size**3 / 1e12, measure_s / 2)
    detail = f"{size} x {size} {str(dtype).removeprefix('torch.')}, bit-equal in {len(unequal)} repetitions"
    return measured(CHECK, device, "gemm_tflops", samples, alike=kind_of(device), detail=detail)
