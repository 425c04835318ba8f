"""Checks of the host's memory, disk and shared memory.

They write a pattern and compare what they read:

word i of block b = i * ODD  xor  key(b, pass)        every other pass is the complement, so each bit is once 0, once 1

Each word depends on its position, so a block in the place of another one is found too. Files have no name, so nothing
remains on a disk, however the check ends.
"""

import errno
import itertools
import mmap
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from diagnose.nodecheck.result import GB, CheckResult, failed, measured, rates

HOST_MEMORY = "host-memory"
HOST_COPIES = "host-copies"
DISK = "disk"
SHARED_MEMORY = "shared-memory"
SHARED_MEMORY_ROOM = "shared-memory-room"

ODD = 0x9E3779B97F4A7C15
ALL_ONES = 0xFFFFFFFFFFFFFFFF
WORD_BYTES = 8
BLOCK_BYTES = 8 << 20
MEMORY_BYTES = 128 << 20
DISK_BYTES = 256 << 20
MIN_DISK_BLOCKS = 2
SHARED_BYTES = 32 << 20
SHM = Path("/dev/shm")
GIB = 1 << 30

Words = npt.NDArray[np.uint64]


class WrongDataError(Exception):
    """Data that was read differs from what was written."""


def base_words(size_bytes: int = BLOCK_BYTES) -> Words:
    """The block that all others are made from."""
    return np.arange(size_bytes // WORD_BYTES, dtype=np.uint64) * np.uint64(ODD)


def key(block: int, turn: int) -> int:
    """The word that is mixed into every word of ``block`` in pass ``turn``."""
    mixed = ((block + 1) * ODD + (turn // 2) * 0x2545F4914F6CDD1D) & ALL_ONES
    return mixed ^ ALL_ONES if turn % 2 else mixed


def first_difference(found: Words, written: Words) -> str:
    """The first word that differs; empty if none does."""
    if np.array_equal(found, written):
        return ""
    at = int(np.flatnonzero(found != written)[0])
    return f"word {at}: wrote {int(written[at]):016x}, read {int(found[at]):016x}"


def host_memory(*, measure_s: float, size_bytes: int = MEMORY_BYTES) -> CheckResult:
    """Write a pattern to memory, read it back, compare. Measures bytes written and verified per second."""
    num_blocks = max(size_bytes // BLOCK_BYTES, 1)
    base = base_words()
    memory = np.empty((num_blocks, len(base)), dtype=np.uint64)
    turns = itertools.count()

    def write_and_verify() -> None:
        turn = next(turns)
        write(memory, base, turn)
        verify(memory, base, turn)

    try:
        samples = rates(write_and_verify, memory.nbytes / GB, measure_s)
    except WrongDataError as error:
        return failed(HOST_MEMORY, "memory", str(error))
    detail = f"{memory.nbytes >> 20} MiB written and verified {next(turns)} times"
    return measured(HOST_MEMORY, "memory", "host_memory_gb_s", samples, detail=detail)


def write(memory: Words, base: Words, turn: int) -> None:
    """Fill each block with its pattern."""
    for block, words in enumerate(memory):
        np.bitwise_xor(base, np.uint64(key(block, turn)), out=words)


def verify(memory: Words, base: Words, turn: int) -> None:
    """Check that each block holds its pattern.

    Raises:
        WrongDataError: a word is not what was written.
    """
    expected = np.empty_like(base)
    for block, words in enumerate(memory):
        np.bitwise_xor(base, np.uint64(key(block, turn)), out=expected)
        if difference := first_difference(words, expected):
            raise WrongDataError(f"memory changed what was written: block {block}, {difference}")


def host_copies(*, measure_s: float, size_bytes: int = MEMORY_BYTES) -> CheckResult:
    """Copy from memory to memory, compare. Measures bytes copied per second."""
    source = base_words(size_bytes)
    target = np.empty_like(source)
    samples = rates(lambda: np.copyto(target, source), size_bytes / GB, measure_s)
    if difference := first_difference(target, source):
        return failed(HOST_COPIES, "memory", f"the copy differs: {difference}")
    return measured(HOST_COPIES, "memory", "host_copy_gb_s", samples, detail=f"{size_bytes >> 20} MiB per copy")


def disk(*, folder: Path, measure_s: float, size_bytes: int = DISK_BYTES) -> CheckResult:
    """Write to the disk of ``folder``, fsync each block of 8 MiB, drop the page cache, read back, compare.

    Measures bytes written per second. Writes at least two blocks. Stops after ``measure_s``, ``size_bytes``, or half of
    the free space.
    """
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            found = os.statvfs(folder)
            samples = _write_blocks(file.fileno(), measure_s, min(size_bytes, found.f_bavail * found.f_frsize // 2))
            return _read_back(file.fileno(), folder, samples)
    except OSError as error:
        hint = " (free some space, or use another folder)" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        return failed(DISK, str(folder), f"{error.strerror}{hint}")


def _write_blocks(file: int, measure_s: float, size_bytes: int) -> list[float]:
    base, samples = base_words(), list[float]()
    deadline = time.perf_counter() + measure_s
    num_blocks = max(size_bytes // BLOCK_BYTES, MIN_DISK_BLOCKS)
    while len(samples) < MIN_DISK_BLOCKS or (len(samples) < num_blocks and time.perf_counter() < deadline):
        block = memoryview((base ^ np.uint64(key(len(samples), 0))).data).cast("B")
        begun = time.perf_counter()
        while block:
            block = block[os.write(file, block) :]
        os.fsync(file)
        samples.append(BLOCK_BYTES / GB / (time.perf_counter() - begun))
    return samples


def _read_back(file: int, folder: Path, samples: list[float]) -> CheckResult:
    """Read the blocks back and compare them. The page cache is dropped first, so that the disk is read. In a file
    system in memory, the pages are the only copy."""
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.lseek(file, 0, os.SEEK_SET)
    base, begun = base_words(), time.perf_counter()
    for number in range(len(samples)):
        found = np.frombuffer(_read(file, BLOCK_BYTES), dtype=np.uint64)
        if len(found) < len(base):
            return failed(DISK, str(folder), f"block {number} is too short")
        if difference := first_difference(found, base ^ np.uint64(key(number, 0))):
            return failed(DISK, str(folder), f"data read back differs: block {number}, {difference}")
    read_gb_s = len(samples) * BLOCK_BYTES / GB / (time.perf_counter() - begun)
    detail = f"{len(samples) * BLOCK_BYTES >> 20} MiB with fsync; read back and verified at {read_gb_s:.2g} GB/s"
    return measured(DISK, str(folder), "disk_write_gb_s", samples, detail=detail)


def _read(file: int, size_bytes: int) -> bytes:
    """Read ``size_bytes``, or less at the end of the file."""
    parts = []
    while size_bytes and (part := os.read(file, size_bytes)):
        parts.append(part)
        size_bytes -= len(part)
    return b"".join(parts)


def shared_memory_room(*, measure_s: float, folder: Path = SHM) -> CheckResult:
    """Measure the free GiB of /dev/shm. NCCL and data loaders have buffers there; containers often get only 64 MiB."""
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return failed(SHARED_MEMORY_ROOM, str(folder), f"{error.strerror}")
    free, total = (blocks * found.f_frsize / GIB for blocks in (found.f_bavail, found.f_blocks))
    detail = f"{total:.3g} GiB in total"
    return measured(SHARED_MEMORY_ROOM, str(folder), "shared_memory_free_gib", [free], detail=detail)


def shared_memory(*, measure_s: float, folder: Path = SHM, size_bytes: int = SHARED_BYTES) -> CheckResult:
    """Copy into a mapped file of /dev/shm and out of it, compare. Measures bytes per second, in and out.

    Reserves the space first: without free space a write would kill the process.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
            with mmap.mmap(file.fileno(), size_bytes) as shared:
                return _measure_shared(shared, folder, measure_s, size_bytes)
    except OSError as error:
        return failed(SHARED_MEMORY, str(folder), f"{error.strerror}: {size_bytes >> 20} MiB needed")


def _measure_shared(shared: mmap.mmap, folder: Path, measure_s: float, size_bytes: int) -> CheckResult:
    words = base_words(size_bytes)
    back = np.empty_like(words)
    samples = _copy_through(shared, words, back, measure_s)
    if difference := first_difference(back, words):
        return failed(SHARED_MEMORY, str(folder), f"data read back differs: {difference}")
    detail = f"{size_bytes >> 20} MiB written and read"
    return measured(SHARED_MEMORY, str(folder), "shared_memory_gb_s", samples, detail=detail)


def _copy_through(shared: mmap.mmap, words: Words, back: Words, measure_s: float) -> list[float]:
    """Copy in and out, and return the rates. A separate function, so that the array is deleted before the mapping is
    closed."""
    inside = np.frombuffer(shared, dtype=np.uint64)

    def copy() -> None:
        np.copyto(inside, words)
        np.copyto(back, inside)

    return rates(copy, words.nbytes / GB, measure_s)
