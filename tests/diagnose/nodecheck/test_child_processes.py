"""A bounded call ends by its deadline, and none of its processes remains."""

import os
import signal
import threading
from functools import partial
from multiprocessing import Pipe
from pathlib import Path

import pytest

from diagnose.nodecheck.child_processes import Outcome, run_bounded
from tests.deadline import until
from tests.trainer.jobs import alive

LONG_S = 30.0


def stand_still(note: Path) -> None:
    """Ignore SIGTERM and never end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note.write_text(str(os.getpid()))
    threading.Event().wait()


def stop_itself(note: Path) -> None:
    note.write_text(str(os.getpid()))
    os.kill(os.getpid(), signal.SIGSTOP)


def die_by(number: int) -> None:
    os.kill(os.getpid(), number)


def fork_further(note: Path) -> list[Outcome]:
    return run_bounded([partial(stand_still, note)], LONG_S)


def divide(by: int) -> float:
    return 1 / by


def run_one(call: object, deadline_s: float = LONG_S) -> Outcome:
    assert callable(call)
    (outcome,) = run_bounded([call], deadline_s)
    return outcome


def test_bounded_call_returns_its_value() -> None:
    outcome = run_one(partial(divide, 2))
    assert (outcome.value, outcome.error) == (0.5, "")


def test_exception_of_a_bounded_call_becomes_its_error() -> None:
    assert run_one(partial(divide, 0)).error == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("number", "is_killed"), [(signal.SIGKILL, True), (signal.SIGTERM, True), (signal.SIGUSR1, False)]
)
def test_error_names_the_signal_that_ended_a_call(number: signal.Signals, is_killed: bool) -> None:
    """The OOM killer sends SIGKILL. A process that fails by itself ends with another signal."""
    outcome = run_one(partial(die_by, number))
    assert (outcome.error, outcome.is_killed) == (f"was killed by {number.name}", is_killed)


def test_call_that_exceeds_its_deadline_is_killed_and_reports_the_deadline(tmp_path: Path) -> None:
    for hang in (stand_still, stop_itself):
        note = tmp_path / hang.__name__
        assert run_one(partial(hang, note), 0.5).error == "did not finish in 0.5 s"
        assert not alive(int(note.read_text()))


def test_child_processes_of_a_killed_call_are_killed(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    assert run_one(partial(fork_further, note), 5.0).error == "did not finish in 5 s"
    until(lambda: not alive(int(note.read_text())), what="its end")


def test_calls_run_concurrently_and_a_hanging_call_does_not_affect_the_others(tmp_path: Path) -> None:
    mine, theirs = Pipe()
    with mine, theirs:
        outcomes = run_bounded([mine.recv, partial(theirs.send, 7), partial(stand_still, tmp_path / "pid")], 1.0)
    assert [outcome.value for outcome in outcomes] == [7, None, None]
    assert [bool(outcome.error) for outcome in outcomes] == [False, False, True]
