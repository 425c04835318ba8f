"""Answers that take long."""

import threading

import numpy as np
import pytest

from tests.deadline import until
from ui.dashboard.data.cache import RETRY_S, BackgroundAnswers, StillWorking


def test_nobody_waits_longer_than_allowed_and_the_answer_comes_later() -> None:
    answers, go_on = BackgroundAnswers(2, wait_s=0.0), threading.Event()
    with pytest.raises(StillWorking):
        answers.get("key", go_on.wait)
    assert not answers.is_ready("key")
    go_on.set()
    until(lambda: answers.is_ready("key"), what="the answer")
    assert answers.get("key", lambda: False) is True


def test_one_piece_of_work_runs_at_a_time() -> None:
    answers, go_on, began = BackgroundAnswers(4, wait_s=0.0), threading.Event(), threading.Event()
    for key, work in (("first", go_on.wait), ("second", began.set)):
        with pytest.raises(StillWorking):
            answers.get(key, work)
    assert not began.is_set()
    go_on.set()
    until(began.is_set, what="the second")


def test_what_nobody_asked_for_lately_is_forgotten_before_it_begins() -> None:
    answers, go_on, asked = BackgroundAnswers(2, wait_s=0.0), threading.Event(), []
    for key, work in (("first", go_on.wait), ("b", lambda: asked.append("b")), ("c", lambda: asked.append("c"))):
        with pytest.raises(StillWorking):
            answers.get(key, work)
    with pytest.raises(StillWorking):
        answers.get("d", lambda: asked.append("d"))
    go_on.set()
    until(lambda: answers.is_ready("d"), what="the newest")
    assert asked == ["c", "d"]


def test_a_failure_is_told_for_a_while_and_then_tried_again() -> None:
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


def test_answers_of_long_work_take_no_more_memory_than_they_may() -> None:
    answers = BackgroundAnswers(100, max_bytes=10_000, wait_s=30.0)
    for key in range(50):
        answers.get(key, lambda: np.zeros(128))
        assert answers.held_bytes <= 10_000
    assert answers.is_ready(49)
    assert not answers.is_ready(0)
