"""Fields of a protobuf message of which only the numbers and types of the fields are known.

    field    tag = number << 3 | wire type      0: varint   1: 8 bytes   2: length, bytes   5: 4 bytes
    varint   7 bits in each byte, the lowest first; the top bit is set if another byte follows

Source: https://protobuf.dev/programming-guides/encoding. All functions raise ValueError or IndexError if the bytes are
not a message.
"""

from collections.abc import Iterator

VARINT, BYTES = 0, 2
FIXED_SIZES = {1: 8, 5: 4}


def fields_of(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field."""
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = varint(message, at)
            yield tag >> 3, value
            continue
        if kind == BYTES:
            size, at = varint(message, at)
        elif kind in FIXED_SIZES:
            size = FIXED_SIZES[kind]
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(message):
            raise ValueError(f"field {tag >> 3} is longer than its message")
        yield tag >> 3, message[at : at + size]
        at += size


def varint(content: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place behind it. At most ten bytes."""
    value = 0
    for shift in range(0, 70, 7):
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise ValueError("a number of more than 64 bits")


def numbers_of(value: int | bytes) -> list[int]:
    """The numbers in a value of a repeated field, packed or not."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        number, at = varint(value, at)
        found.append(number)
    return found
