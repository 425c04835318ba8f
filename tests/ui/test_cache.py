"""Answers kept for a while."""

import threading

import pytest

from tests.deadline import until
from ui.cache import AnswerCache


def test_an_answer_is_worked_out_once() -> None:
    cache, asked = AnswerCache(2), []
    for _ in range(3):
        assert cache.get("key", lambda: asked.append(1) or 7) == 7
    assert len(asked) == 1


def test_the_least_recently_used_answer_goes_first() -> None:
    cache, asked = AnswerCache(2), []
    for key in ("a", "b", "a", "c", "a", "b"):
        cache.get(key, lambda key=key: asked.append(key))
    assert asked == ["a", "b", "c", "b"]


def test_a_failure_is_raised_and_not_kept() -> None:
    cache = AnswerCache(2)

    def fail() -> int:
        raise ValueError("gone")

    with pytest.raises(ValueError, match="gone"):
        cache.get("key", fail)
    assert cache.get("key", lambda: 7) == 7


def test_many_askers_share_one_work() -> None:
    cache, begun, go_on, answers = AnswerCache(2), [], threading.Event(), []

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
