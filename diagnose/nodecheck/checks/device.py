"""Checks of a torch device: matrix products, memory, copies. Importing this file imports torch."""

import itertools
from collections.abc import Callable

import torch

from diagnose.nodecheck.checks.host import ODD, WORD_BYTES, key
from diagnose.nodecheck.devices import free_bytes, is_gpu, kind_of, synchronize
from diagnose.nodecheck.result import GB, CheckResult, failed, measured, rates

GEMM = "gemm"
DEVICE_MEMORY = "device-memory"
DEVICE_COPIES = "device-copies"

SEED = 20
BLOCK_BYTES = 256 << 20
COPY_BYTES = 256 << 20
SHARE = 0.8
"""Share of the free memory to check if no other process computes there. The comparison needs the rest."""
SMALL_SHARE = 0.05
SMALL_BYTES = 2 << 30
"""Share and maximum if another process may compute there: its next allocation must succeed."""
SIGN_BIT = 1 << 63

Multiply = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]


def gemm(*, device: str, measure_s: float, size: int | None = None, multiply: Multiply | None = None) -> CheckResult:
    """TFLOP/s of square products, bf16 on a GPU and fp32 on a CPU; failed if two products differ in a bit.

    A different result for the same input is silent data corruption. A device with the same error in every product is
    not found. ``multiply(a, b, out)`` replaces the product in tests.
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
        return failed(GEMM, device, f"the same product differed in {sum(unequal)} of {len(unequal)} repetitions")
    samples = rates(repeat, 2 * size**3 / 1e12, measure_s / 2)
    detail = f"{size} x {size} {str(dtype).removeprefix('torch.')}, bit-equal in {len(unequal)} repetitions"
    return measured(GEMM, device, "gemm_tflops", samples, alike=kind_of(device), detail=detail)


def device_memory(*, device: str, measure_s: float, size_bytes: int | None = None, alone: bool = True) -> CheckResult:
    """Write a pattern to free memory, read it back on the device, compare. Measures bytes per second.

    ``alone``: no other process computes on the device.
    """
    wanted = wanted_bytes(free_bytes(device), alone=alone) if size_bytes is None else size_bytes
    block_bytes = min(max(wanted // WORD_BYTES, 1) * WORD_BYTES, BLOCK_BYTES)
    base = torch.arange(block_bytes // WORD_BYTES, dtype=torch.int64, device=device).mul_(_signed(ODD))
    blocks = [torch.empty_like(base) for _ in range(max(wanted // block_bytes, 1))]
    turns, wrong = itertools.count(), list[int]()

    def write_and_verify() -> None:
        turn = next(turns)
        write(blocks, base, turn)
        wrong.extend(changed(blocks, base, turn))
        synchronize(device)

    amount = len(blocks) * block_bytes
    samples = rates(write_and_verify, amount / GB, measure_s)
    if wrong:
        return failed(DEVICE_MEMORY, device, f"memory changed what was written: block {wrong[0]} of {len(blocks)}")
    detail = f"{amount >> 20} MiB written and verified {next(turns)} times"
    return measured(DEVICE_MEMORY, device, "device_memory_gb_s", samples, alike=kind_of(device), detail=detail)


def wanted_bytes(free: int, *, alone: bool) -> int:
    """Bytes to check. The base block and the comparison need two more blocks."""
    return int(SHARE * free) if alone else min(int(SMALL_SHARE * free), SMALL_BYTES)


def write(blocks: list[torch.Tensor], base: torch.Tensor, turn: int) -> None:
    """Fill each block with its pattern."""
    for number, block in enumerate(blocks):
        torch.bitwise_xor(base, _signed(key(number, turn)), out=block)


def changed(blocks: list[torch.Tensor], base: torch.Tensor, turn: int) -> list[int]:
    """Numbers of the blocks that differ from what was written. Waits for the device once, at the end."""
    expected = torch.empty_like(base)
    same = []
    for number, block in enumerate(blocks):
        torch.bitwise_xor(base, _signed(key(number, turn)), out=expected)
        same.append((block == expected).all())
    return [number for number, is_same in enumerate(torch.stack(same).tolist()) if not is_same]


def _signed(word: int) -> int:
    """An int64 of torch with the same bits."""
    return word - (1 << 64) if word & SIGN_BIT else word


def device_copies(*, source: str, target: str, measure_s: float, size_bytes: int = COPY_BYTES) -> CheckResult:
    """Copy between two devices over PCIe or NVLink, with pinned host memory; compare. Measures bytes per second."""
    words = torch.arange(size_bytes // WORD_BYTES, dtype=torch.int64)
    there = _placed(source, words, pinned=is_gpu(target))
    here = _placed(target, torch.zeros_like(words), pinned=is_gpu(source))

    def copy() -> None:
        here.copy_(there, non_blocking=True)
        synchronize(source)
        synchronize(target)

    subject = f"{source} -> {target}"
    samples = rates(copy, size_bytes / GB, measure_s)
    if not torch.equal(here.cpu(), words):
        return failed(DEVICE_COPIES, subject, "the copy differs from its source")
    name = f"{_side(source)}_to_{_side(target)}_gb_s"
    kinds, detail = f"{kind_of(source)} -> {kind_of(target)}", f"{size_bytes >> 20} MiB per copy"
    return measured(DEVICE_COPIES, subject, name, samples, alike=kinds, detail=detail)


def _placed(device: str, words: torch.Tensor, *, pinned: bool) -> torch.Tensor:
    return words.to(device) if is_gpu(device) else words.pin_memory() if pinned else words.clone()


def _side(device: str) -> str:
    return "device" if is_gpu(device) else "host"
