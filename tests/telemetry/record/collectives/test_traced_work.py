"""Whoever learns that an operation has ended, ends its span; and the session waits for it."""

import threading
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from telemetry.record.collectives.traced_work import TracedWork, end_completed, release_callbacks


class Completed(dist.Work):
    """Done, with a future whose callbacks run where it is set."""

    def __init__(self, *, completed: bool = True) -> None:
        super().__init__()
        self.future: torch.futures.Future[int] = torch.futures.Future()
        self._completed = completed

    def is_completed(self) -> bool:
        return self._completed

    def get_future(self) -> Any:
        return self.future


class Slow:
    """Records an operation's end only when it is let; a second end of the same one counts for nothing."""

    def __init__(self) -> None:
        self.entered, self.may_record = threading.Event(), threading.Event()
        self.recorded: list[str] = []
        self._ended = False

    def end(self, flight: str) -> None:
        if self._ended:
            return
        self._ended = True
        self.entered.set()
        self.may_record.wait(10)
        self.recorded.append(flight)


def test_a_session_ends_only_after_a_callback_that_is_ending_a_span_has_recorded_it() -> None:
    operations, inner = Slow(), Completed()
    TracedWork(inner, ["a flight"], operations).get_future()  # type: ignore[arg-type,list-item]
    callback = threading.Thread(target=inner.future.set_result, args=(1,))
    callback.start()
    assert operations.entered.wait(10)
    threading.Timer(0.1, operations.may_record.set).start()
    end_completed()
    assert operations.recorded == ["a flight"]
    callback.join()


def test_a_group_ends_only_after_torch_has_run_and_released_the_callbacks_of_its_works() -> None:
    operations, inner = Slow(), Completed()
    TracedWork(inner, ["a flight"], operations).get_future()  # type: ignore[arg-type,list-item]
    callback = threading.Thread(target=inner.future.set_result, args=(1,))
    callback.start()
    assert operations.entered.wait(10)
    threading.Timer(0.1, operations.may_record.set).start()
    release_callbacks()
    assert operations.recorded == ["a flight"]
    callback.join()


def test_a_group_does_not_wait_for_works_that_have_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Completed(completed=False)
    TracedWork(inner, ["a flight"], Slow()).get_future()  # type: ignore[arg-type,list-item]

    def sleep(seconds: float) -> None:
        raise AssertionError("it waits")

    monkeypatch.setattr(time, "sleep", sleep)
    release_callbacks()


def test_what_nobody_has_ended_yet_is_ended_with_the_session() -> None:
    operations, inner = Slow(), Completed()
    operations.may_record.set()
    TracedWork(inner, ["a flight"], operations).get_future()  # type: ignore[arg-type,list-item]
    end_completed()
    assert operations.recorded == ["a flight"]


def test_a_work_whose_future_is_set_has_ended_also_where_it_does_not_say_so_yet() -> None:
    """gloo sets the future of a work before the work itself is completed."""
    operations, inner = Slow(), Completed(completed=False)
    operations.may_record.set()
    inner.future.set_result(1)
    inner.future.add_done_callback = lambda _: None  # type: ignore[method-assign]  # the callback has not run yet
    TracedWork(inner, ["a flight"], operations).get_future()  # type: ignore[arg-type,list-item]
    end_completed()
    assert operations.recorded == ["a flight"]
