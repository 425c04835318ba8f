"""Host memory: write a pattern, read it back, compare."""

import itertools

import numpy as np

from diagnose.nodecheck.checks.pattern import BLOCK_BYTES, Words, base_words, first_difference, key
from diagnose.nodecheck.result import GB, CheckResult, failed, measured, rates

CHECK = "host-memory"
SIZE_BYTES = 128 << 20


class WrongDataError(Exception):
    """What was read is not what was written."""


def run(*, measure_s: float, size_bytes: int = SIZE_BYTES) -> CheckResult:
    """Bytes written and verified per second; failed when a word comes back changed."""
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
        return failed(CHECK, "memory", str(error))
    detail = f"{memory.nbytes >> 20} MiB written and verified {next(turns)} times"
    return measured(CHECK, "memory", "host_memory_gb_s", samples, detail=detail)


def write(memory: Words, base: Words, turn: int) -> None:
    """Fill each block with its pattern."""
    for block, words in enumerate(memory):
        np.bitwise_xor(base, np.uint64(key(block, turn)), out=words)


def verify(memory: Words, base: Words, turn: int) -> None:
    """Raises:
    WrongDataError: a word is not what was written.
    """
    expected = np.empty_like(base)
    for block, words in enumerate(memory):
        np.bitwise_xor(base, np.uint64(key(block, turn)), out=expected)
        if difference := first_difference(words, expected):
            raise WrongDataError(f"memory changed what was written: block {block}, {difference}")
