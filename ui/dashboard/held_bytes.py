"""How much memory an answer takes: exact for arrays and tables, estimated for small objects."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

SAMPLE = 64
"""Elements of a long sequence that are measured. The rest counts as their mean."""


def held_bytes(answer: object) -> int:
    """Bytes that are freed with ``answer``, at most. Memory that several parts of it share counts once."""
    return _measured(answer, set())


def _measured(part: Any, seen: set[int]) -> int:
    part = _owner(part)
    if part is None or id(part) in seen:
        return 0
    seen.add(id(part))
    if isinstance(part, np.ndarray):
        return int(part.nbytes)
    if isinstance(part, (pa.Table, pa.ChunkedArray, pa.Array, pa.RecordBatch)):
        return int(part.get_total_buffer_size())
    return sys.getsizeof(part) + _of_elements(part, seen)


def _owner(part: Any) -> Any:
    """Of an array that shows a section of another one, the one whose memory it is."""
    while isinstance(part, np.ndarray) and isinstance(part.base, np.ndarray):
        part = part.base
    return part


def _of_elements(part: Any, seen: set[int]) -> int:
    count = len(part) if isinstance(part, (Mapping, list, tuple, set, frozenset)) else 0
    if not count:
        return sum(_measured(member, seen) for member in _members(part))
    elements = part.items() if isinstance(part, Mapping) else part
    first = sum(_measured(element, seen) for element in islice(elements, SAMPLE))
    return first * count // min(count, SAMPLE)


def _members(part: Any) -> Iterator[Any]:
    """Values of the fields of a dataclass. An object of another class counts as small."""
    if is_dataclass(part) and not isinstance(part, type):
        for field in fields(part):
            yield getattr(part, field.name)
