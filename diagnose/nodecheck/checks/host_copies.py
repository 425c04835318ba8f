"""Copies within host memory."""

import numpy as np

from diagnose.nodecheck.checks.pattern import base_words, first_difference
from diagnose.nodecheck.result import GB, CheckResult, failed, measured, rates

CHECK = "host-copies"
SIZE_BYTES = 128 << 20


def run(*, measure_s: float, size_bytes: int = SIZE_BYTES) -> CheckResult:
    """Bytes copied per second from memory to memory; failed when the copy differs."""
    source = base_words(size_bytes)
    target = np.empty_like(source)
    samples = rates(lambda: np.copyto(target, source), size_bytes / GB, measure_s)
    if difference := first_difference(target, source):
        return failed(CHECK, "memory", f"the copy differs: {difference}")
    return measured(CHECK, "memory", "host_copy_gb_s", samples, detail=f"{size_bytes >> 20} MiB a copy")
