"""Spans of operations are ended by callbacks or at the end of the session, which waits for running callbacks."""

import threading
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from telemetry.record.collectives.traced_work import TracedWork, end_completed, release_callbacks


class Completed(dist.Work):
    """A work whose future runs its callbacks in the thread that sets it."""

    def __init__(self, *, completed: bool = True) -> None:
        super().__init__()
        self.future: torch.futures.Future[int] = torch.futures.Future()
        self._completed = completed

    def is_completed(self) -> bool:
        return self._completed

    def get_future(self) -> Any:
        return self.future


class Slow:
    """Records the end of an operation only after ``may_record`` is set. A second end is ignored."""

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


def test_session_end_waits_for_a_running_callback_to_record_its_span() -> None:
    operations, inner = Slow(), Completed()
    TracedWork(inner, ["a flight"], operations).get_future()  # type: ignore[arg-type,list-item]
    callback = threading.Thread(target=inner.future.set_result, args=(1,))
    callback.start()
    assert operations.entered.wait(10)
    threading.Timer(0.1, operations.may_record.set).start()
    end_completed()
    assert operations.recorded == ["a flight"]
    callback.join()


def test_group_end_waits_for_running_callbacks_of_ended_works() -> None:
    operations, inner = Slow(), Completed()
    TracedWork(inner, ["a flight"], operations).get_future()  # type: ignore[arg-type,list-item]
    callback = threading.Thread(target=inner.future.set_result, args=(1,))
    callback.start()
    assert operations.entered.wait(10)
    threading.Timer(0.1, operations.may_record.set).start()
    release_callbacks()
    assert operations.recorded == ["a flight"]
    callback.join()


def test_group_end_does_not_wait_for_unfinished_works(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Completed(completed=False)
    TracedWork(inner, ["a flight"], Slow()).get_future()  # type: ignore[arg-type,list-item]

    def sleep(seconds: float) -> None:
        raise AssertionError("it waits")

    monkeypatch.setattr(time, "sleep", sleep)
    release_callbacks()


def test_session_end_records_completed_operations_whose_callbacks_have_not_run() -> None:
    operations, inner = Slow(), Completed()
    operations.may_record.set()
    TracedWork(inner, ["a flight"], operations).get_future()  # type: ignore[arg-type,list-item]
    end_completed()
    assert operations.recorded == ["a flight"]


def test_work_with_a_set_future_counts_as_ended_before_it_reports_completion() -> None:
    """gloo sets the future of a work before the work itself is completed."""
    operations, inner = Slow(), Completed(completed=False)
    operations.may_record.set()
    inner.future.set_result(1)
    inner.future.add_done_callback = lambda _: None  # type: ignore[method-assign]  # the callback has not run yet
    TracedWork(inner, ["a flight"], operations).get_future()  # type: ignore[arg-type,list-item]
    end_completed()
    assert operations.recorded == ["a flight"]
