"""Device memory: write a pattern over most of what is free, read it back on the device, compare."""

import itertools

import torch

from diagnose.nodecheck.checks.pattern import ODD, WORD_BYTES, key
from diagnose.nodecheck.devices import free_bytes, kind_of, synchronize
from diagnose.nodecheck.result import GB, CheckResult, failed, measured, rates

CHECK = "device-memory"
BLOCK_BYTES = 256 << 20
SHARE = 0.8
"""Of what is free, where nobody else computes: leaves room for the comparison."""
SMALL_SHARE = 0.05
SMALL_BYTES = 2 << 30
"""The same, at most, where somebody may: what he allocates next must find room."""
SIGN_BIT = 1 << 63


def run(*, device: str, measure_s: float, size_bytes: int | None = None, alone: bool = True) -> CheckResult:
    """Bytes written and verified per second; failed when a block comes back changed. ``alone``: nobody else computes on
    the device."""
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
        return failed(CHECK, device, f"memory changed what was written: block {wrong[0]} of {len(blocks)}")
    detail = f"{amount >> 20} MiB written and verified {next(turns)} times"
    return measured(CHECK, device, "device_memory_gb_s", samples, alike=kind_of(device), detail=detail)


def wanted_bytes(free: int, *, alone: bool) -> int:
    """How much of the free memory is tried; base and comparison take two blocks besides."""
    return int(SHARE * free) if alone else min(int(SMALL_SHARE * free), SMALL_BYTES)


def write(blocks: list[torch.Tensor], base: torch.Tensor, turn: int) -> None:
    """Fill each block with its pattern."""
    for number, block in enumerate(blocks):
        torch.bitwise_xor(base, _signed(key(number, turn)), out=block)


def changed(blocks: list[torch.Tensor], base: torch.Tensor, turn: int) -> list[int]:
    """Blocks that are not what was written. One pass without waiting for the device, one answer at the end."""
    expected = torch.empty_like(base)
    same = []
    for number, block in enumerate(blocks):
        torch.bitwise_xor(base, _signed(key(number, turn)), out=expected)
        same.append((block == expected).all())
    return [number for number, is_same in enumerate(torch.stack(same).tolist()) if not is_same]


def _signed(word: int) -> int:
    """The same bits as torch's int64 has them."""
    return word - (1 << 64) if word & SIGN_BIT else word
