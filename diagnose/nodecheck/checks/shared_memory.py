"""Shared memory: copies into a mapped file of /dev/shm and out of it, compared.

The file has no name: nothing stays behind, whatever ends the check.
"""

import mmap
import os
import tempfile
from pathlib import Path

import numpy as np

from diagnose.nodecheck.checks.pattern import Words, base_words, first_difference
from diagnose.nodecheck.checks.shared_memory_room import SHM
from diagnose.nodecheck.result import GB, CheckResult, failed, measured, rates

CHECK = "shared-memory"
SIZE_BYTES = 32 << 20


def run(*, measure_s: float, folder: Path = SHM, size_bytes: int = SIZE_BYTES) -> CheckResult:
    """Bytes per second through shared memory, in and out. Room is claimed first: a full one would kill the process."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
            with mmap.mmap(file.fileno(), size_bytes) as shared:
                return _measure(shared, folder, measure_s, size_bytes)
    except OSError as error:
        return failed(CHECK, str(folder), f"{error.strerror}: {size_bytes >> 20} MiB wanted")


def _measure(shared: mmap.mmap, folder: Path, measure_s: float, size_bytes: int) -> CheckResult:
    words = base_words(size_bytes)
    back = np.empty_like(words)
    samples = _through(shared, words, back, measure_s)
    if difference := first_difference(back, words):
        return failed(CHECK, str(folder), f"what was read differs: {difference}")
    return measured(CHECK, str(folder), "shared_memory_gb_s", samples, detail=f"{size_bytes >> 20} MiB in and out")


def _through(shared: mmap.mmap, words: Words, back: Words, measure_s: float) -> list[float]:
    """A function of its own: the mapping can be closed only when nobody looks at it any more."""
    inside = np.frombuffer(shared, dtype=np.uint64)

    def through() -> None:
        np.copyto(inside, words)
        np.copyto(back, inside)

    return rates(through, words.nbytes / GB, measure_s)
