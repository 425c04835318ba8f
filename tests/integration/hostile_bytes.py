"""Damaged bytes: flipped, truncated, repeated, spliced, and with wrong numbers in the place of lengths."""

import random
import struct

LIES = (0, 1, -1, 2**31 - 1, -(2**31), 2**32 - 1, 2**40, 2**62, 2**63 - 1, -(2**63))
MAX_BYTES = 2**17


def damaged(rng: random.Random, good: bytes) -> bytes:
    """Mostly valid bytes. They pass more checks than random bytes."""
    data = bytearray(good)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 32])):
        if data:
            rng.choice(_WAYS)(rng, data)
    return bytes(data[:MAX_BYTES])


def _flip(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _replace(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    data[at : at + rng.randrange(1, 9)] = rng.randbytes(rng.randrange(1, 9))


def _cut(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)) :]


def _drop(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.randrange(1, 64)]


def _repeat(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    data[at:at] = data[at : at + rng.randrange(1, 256)] * rng.choice([1, 2, 50])


def _lie(rng: random.Random, data: bytearray) -> None:
    """Replace an aligned number of four or eight bytes."""
    size, form = rng.choice([(4, "<I"), (8, "<Q")])
    if len(data) >= size:
        at = rng.randrange(len(data) // size) * size
        struct.pack_into(form, data, at, rng.choice(LIES) % 2 ** (8 * size))


_WAYS = (_flip, _replace, _cut, _drop, _repeat, _lie, _lie)
