"""A folder's disk: write, fsync, drop from the page cache, read back, compare.

The file has no name: nothing stays behind, whatever ends the check.
"""

import errno
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from diagnose.nodecheck.checks.pattern import BLOCK_BYTES, base_words, first_difference, key
from diagnose.nodecheck.result import GB, CheckResult, failed, measured

CHECK = "disk"
SIZE_BYTES = 256 << 20
MIN_BLOCKS = 2


def run(*, folder: Path, measure_s: float, size_bytes: int = SIZE_BYTES) -> CheckResult:
    """Bytes per second, each block of 8 MiB with its fsync.

    Stops writing after ``measure_s``, ``size_bytes``, or half of what is free; two blocks must fit.
    """
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            samples = _write(file.fileno(), measure_s, min(size_bytes, _room_bytes(folder) // 2))
            return _read_back(file.fileno(), folder, samples)
    except OSError as error:
        hint = " (free some of it, or take another folder)" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        return failed(CHECK, str(folder), f"{error.strerror}{hint}")


def _write(file: int, measure_s: float, size_bytes: int) -> list[float]:
    base, samples = base_words(), list[float]()
    deadline = time.perf_counter() + measure_s
    num_blocks = max(size_bytes // BLOCK_BYTES, MIN_BLOCKS)
    while len(samples) < MIN_BLOCKS or (len(samples) < num_blocks and time.perf_counter() < deadline):
        block = memoryview((base ^ np.uint64(key(len(samples), 0))).data).cast("B")
        begun = time.perf_counter()
        while block:
            block = block[os.write(file, block) :]
        os.fsync(file)
        samples.append(BLOCK_BYTES / GB / (time.perf_counter() - begun))
    return samples


def _room_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _read_back(file: int, folder: Path, samples: list[float]) -> CheckResult:
    """Clean pages leave the cache when asked to; on a file system in memory there is nothing else to read from."""
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.lseek(file, 0, os.SEEK_SET)
    base, begun = base_words(), time.perf_counter()
    for number in range(len(samples)):
        found = np.frombuffer(_read(file, BLOCK_BYTES), dtype=np.uint64)
        if len(found) < len(base):
            return failed(CHECK, str(folder), f"block {number} came back short")
        if difference := first_difference(found, base ^ np.uint64(key(number, 0))):
            return failed(CHECK, str(folder), f"what was read differs: block {number}, {difference}")
    read_gb_s = len(samples) * BLOCK_BYTES / GB / (time.perf_counter() - begun)
    detail = f"{len(samples) * BLOCK_BYTES >> 20} MiB with fsync; read back and verified at {read_gb_s:.2g} GB/s"
    return measured(CHECK, str(folder), "disk_write_gb_s", samples, detail=detail)


def _read(file: int, size_bytes: int) -> bytes:
    """Up to the end of the file."""
    parts = []
    while size_bytes and (part := os.read(file, size_bytes)):
        parts.append(part)
        size_bytes -= len(part)
    return b"".join(parts)
