"""A cache of answers, bounded in number and bytes. Simultaneous requests for one answer share its computation.

The size of an answer is exact for arrays and tables, and estimated for small objects.
"""

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import islice
from typing import Any, TypeVar, cast

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


Answer = TypeVar("Answer")


@dataclass(slots=True, kw_only=True)
class _Kept:
    version: Hashable
    future: "Future[Any]" = field(default_factory=Future)
    num_bytes: int = 0


class AnswerCache:
    """Least recently used answers by key. May be called from any thread; a call may block until another one is done.

    A failure is raised to all who wait for it and is not kept.

    Args:
        size: the most answers.
        max_bytes: the most memory that answers take. The newest answer is kept even if it takes more by itself.
    """

    def __init__(self, size: int, max_bytes: int) -> None:
        self._size = size
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, _Kept] = OrderedDict()

    @property
    def held_bytes(self) -> int:
        """Memory that the answers take."""
        with self._lock:
            return sum(kept.num_bytes for kept in self._answers.values())

    def get(self, key: Hashable, work: Callable[[], Answer], version: Hashable = None) -> Answer:
        """The answer kept under ``key`` if it is of this ``version``, else that of ``work()``, which replaces it."""
        with self._lock:
            kept = self._answers.get(key)
            is_known = kept is not None and kept.version == version
            if kept is None or not is_known:
                kept = self._answers[key] = _Kept(version=version)
            self._answers.move_to_end(key)
            self._drop_oldest()
        if not is_known:
            self._fill(key, kept, work)
        return cast(Answer, kept.future.result())

    def _fill(self, key: Hashable, kept: _Kept, work: Callable[[], Any]) -> None:
        try:
            answer = work()
            num_bytes = held_bytes(answer)
        except BaseException as error:
            with self._lock:
                if self._answers.get(key) is kept:
                    del self._answers[key]
            kept.future.set_exception(error)
            return
        kept.future.set_result(answer)
        with self._lock:
            kept.num_bytes = num_bytes
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        total = sum(kept.num_bytes for kept in self._answers.values())
        while len(self._answers) > self._size or (total > self._max_bytes and len(self._answers) > 1):
            total -= self._answers.popitem(last=False)[1].num_bytes
