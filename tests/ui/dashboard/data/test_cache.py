"""The cache of answers."""

import threading

import numpy as np
import pyarrow as pa
import pytest

from tests.deadline import until
from ui.dashboard.data.cache import AnswerCache, held_bytes
from ui.dashboard.records import Series

MANY = 2**30
KILOBYTE = np.zeros(128)


def test_answer_is_computed_once() -> None:
    cache, asked = AnswerCache(2, MANY), []
    for _ in range(3):
        assert cache.get("key", lambda: asked.append(1) or 7) == 7
    assert len(asked) == 1


def test_least_recently_used_answer_is_evicted_first() -> None:
    cache, asked = AnswerCache(2, MANY), []
    for key in ("a", "b", "a", "c", "a", "b"):
        cache.get(key, lambda key=key: asked.append(key))
    assert asked == ["a", "b", "c", "b"]


def test_failure_is_raised_and_not_cached() -> None:
    cache = AnswerCache(2, MANY)

    def fail() -> int:
        raise ValueError("gone")

    with pytest.raises(ValueError, match="gone"):
        cache.get("key", fail)
    assert cache.get("key", lambda: 7) == 7


def test_concurrent_requests_share_one_computation() -> None:
    cache, begun, go_on, answers = AnswerCache(2, MANY), [], threading.Event(), []

    def slow() -> int:
        begun.append(1)
        go_on.wait(10)
        return 7

    threads = [threading.Thread(target=lambda: answers.append(cache.get("key", slow))) for _ in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: begun)
    go_on.set()
    for thread in threads:
        thread.join()
    assert answers == [7] * 8
    assert len(begun) == 1


def test_cached_answers_stay_within_the_memory_limit() -> None:
    cache = AnswerCache(100, 10_000)
    for key in range(50):
        cache.get(key, KILOBYTE.copy)
        assert cache.held_bytes <= 10_000
    asked: list[int] = []
    for key in (49, 0):
        cache.get(key, lambda key=key: asked.append(key))
    assert asked == [0]


def test_replaced_evicted_and_failed_answers_take_no_memory() -> None:
    cache = AnswerCache(2, MANY)

    def fail() -> None:
        raise ValueError("gone")

    for version in range(3):
        cache.get("key", KILOBYTE.copy, version=version)
        assert cache.held_bytes == held_bytes(KILOBYTE)
    with pytest.raises(ValueError, match="gone"):
        cache.get("key", fail, version="next")
    assert cache.held_bytes == 0
    for key in range(5):
        cache.get(key, KILOBYTE.copy)
    assert cache.held_bytes == 2 * held_bytes(KILOBYTE)


def test_newest_answer_is_cached_even_if_it_exceeds_the_memory_limit() -> None:
    cache, asked = AnswerCache(100, 10), []
    for _ in range(2):
        cache.get("key", lambda: asked.append(1) or KILOBYTE.copy())
    assert len(asked) == 1


def test_answer_of_another_version_replaces_the_previous_answer() -> None:
    cache = AnswerCache(100, MANY)
    answers = [cache.get("key", lambda version=version: (version, KILOBYTE.copy()), version) for version in (1, 2, 2)]
    assert [version for version, _ in answers] == [1, 2, 2]
    assert cache.held_bytes < 2 * KILOBYTE.nbytes


def test_held_bytes_counts_shared_arrays_once_and_slices_as_a_whole() -> None:
    table = pa.table({"step": KILOBYTE, "value": KILOBYTE})
    assert held_bytes(table.slice(5, 1)) >= KILOBYTE.nbytes
    assert held_bytes(KILOBYTE[3:4]) == KILOBYTE.nbytes
    step = KILOBYTE.astype(int)
    series = Series(metric="loss", attempt=step, step=step, at_ns=step, value=KILOBYTE)
    assert held_bytes({"a": series, "b": [series, KILOBYTE]}) == pytest.approx(2 * KILOBYTE.nbytes, rel=0.5)
    many = [KILOBYTE.copy() for _ in range(1000)]
    assert held_bytes(many) == pytest.approx(1000 * KILOBYTE.nbytes, rel=0.2)
