"""Answers that take a long time to compute."""

import threading

import numpy as np
import pytest

from tests.deadline import until
from ui.dashboard.data.cache import RETRY_S, BackgroundAnswers, StillWorking


def test_slow_answer_raises_still_working_and_is_ready_later() -> None:
    answers, go_on = BackgroundAnswers(2, wait_s=0.0), threading.Event()
    with pytest.raises(StillWorking):
        answers.get("key", go_on.wait)
    assert not answers.is_ready("key")
    go_on.set()
    until(lambda: answers.is_ready("key"), what="the answer")
    assert answers.get("key", lambda: False) is True


def test_background_answers_are_computed_one_at_a_time() -> None:
    answers, go_on, began = BackgroundAnswers(4, wait_s=0.0), threading.Event(), threading.Event()
    for key, work in (("first", go_on.wait), ("second", began.set)):
        with pytest.raises(StillWorking):
            answers.get(key, work)
    assert not began.is_set()
    go_on.set()
    until(began.is_set, what="the second")


def test_oldest_waiting_request_is_dropped_before_it_starts() -> None:
    answers, go_on, asked = BackgroundAnswers(2, wait_s=0.0), threading.Event(), []
    for key, work in (("first", go_on.wait), ("b", lambda: asked.append("b")), ("c", lambda: asked.append("c"))):
        with pytest.raises(StillWorking):
            answers.get(key, work)
    with pytest.raises(StillWorking):
        answers.get("d", lambda: asked.append("d"))
    go_on.set()
    until(lambda: answers.is_ready("d"), what="the newest")
    assert asked == ["c", "d"]


def test_failure_is_raised_again_without_a_retry_until_the_retry_period_ends() -> None:
    now = [0.0]
    answers, tried = BackgroundAnswers(2, wait_s=30.0, clock_s=lambda: now[0]), []

    def fail() -> None:
        tried.append(1)
        raise ValueError("gone")

    for at, times in ((0.0, 1), (RETRY_S - 1, 1), (RETRY_S + 1, 2)):
        now[0] = at
        with pytest.raises(ValueError, match="gone"):
            answers.get("key", fail)
        assert len(tried) == times


def test_answer_forgotten_during_its_computation_takes_no_memory() -> None:
    answers, go_on = BackgroundAnswers(2, wait_s=0.0), threading.Event()

    def work() -> bytes:
        go_on.wait()
        return bytes(10_000)

    with pytest.raises(StillWorking):
        answers.get("key", work)
    answers.forget("key")
    with pytest.raises(StillWorking):
        answers.get("next", lambda: b"")
    go_on.set()
    until(lambda: answers.is_ready("next"), what="the next answer")
    assert answers.held_bytes < 1_000


def test_background_answers_stay_within_their_memory_limit() -> None:
    answers = BackgroundAnswers(100, max_bytes=10_000, wait_s=30.0)
    for key in range(50):
        answers.get(key, lambda: np.zeros(128))
        assert answers.held_bytes <= 10_000
    assert answers.is_ready(49)
    assert not answers.is_ready(0)
