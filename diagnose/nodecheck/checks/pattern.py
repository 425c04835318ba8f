"""What is written to memory and to disks to be found again.

word i of block b = i * ODD  xor  key(b, pass)        every other pass the complement: each bit is once 0, once 1

The word depends on its place, so a block that lands in another's place is seen, too.
"""

import numpy as np
import numpy.typing as npt

ODD = 0x9E3779B97F4A7C15
ALL_ONES = 0xFFFFFFFFFFFFFFFF
WORD_BYTES = 8
BLOCK_BYTES = 8 << 20

Words = npt.NDArray[np.uint64]


def base_words(size_bytes: int = BLOCK_BYTES) -> Words:
    """The block that all others are made of."""
    return np.arange(size_bytes // WORD_BYTES, dtype=np.uint64) * np.uint64(ODD)


def key(block: int, turn: int) -> int:
    """What block ``block`` is mixed with in pass ``turn``."""
    mixed = ((block + 1) * ODD + (turn // 2) * 0x2545F4914F6CDD1D) & ALL_ONES
    return mixed ^ ALL_ONES if turn % 2 else mixed


def first_difference(found: Words, written: Words) -> str:
    """Where two blocks differ first, in words; empty when they do not."""
    if np.array_equal(found, written):
        return ""
    at = int(np.flatnonzero(found != written)[0])
    return f"word {at}: wrote {int(written[at]):016x}, read {int(found[at]):016x}"
