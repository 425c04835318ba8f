"""Copies between host and device, and between devices: what the PCIe slot or NVLink gives."""

import torch

from diagnose.nodecheck.devices import is_gpu, kind_of, synchronize
from diagnose.nodecheck.result import GB, CheckResult, failed, measured, rates

CHECK = "device-copies"
SIZE_BYTES = 256 << 20
WORD_BYTES = 8


def run(*, source: str, target: str, measure_s: float, size_bytes: int = SIZE_BYTES) -> CheckResult:
    """Bytes copied per second, with pinned memory on the host's side; failed when the copy differs."""
    words = torch.arange(size_bytes // WORD_BYTES, dtype=torch.int64)
    there = _on(source, words, pinned=is_gpu(target))
    here = _on(target, torch.zeros_like(words), pinned=is_gpu(source))

    def copy() -> None:
        here.copy_(there, non_blocking=True)
        synchronize(source)
        synchronize(target)

    subject = f"{source} -> {target}"
    samples = rates(copy, size_bytes / GB, measure_s)
    if not torch.equal(here.cpu(), words):
        return failed(CHECK, subject, "the copy differs from its source")
    kinds = f"{kind_of(source)} -> {kind_of(target)}"
    name = f"{_place(source)}_to_{_place(target)}_gb_s"
    return measured(CHECK, subject, name, samples, alike=kinds, detail=f"{size_bytes >> 20} MiB a copy")


def _on(device: str, words: torch.Tensor, *, pinned: bool) -> torch.Tensor:
    return words.to(device) if is_gpu(device) else words.pin_memory() if pinned else words.clone()


def _place(device: str) -> str:
    return "device" if is_gpu(device) else "host"
