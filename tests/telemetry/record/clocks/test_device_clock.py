"""Spans on a device clock: issued at once, resolved later. The training thread never waits for them."""

import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic_ns

import pytest

import telemetry
from telemetry.record.clocks.drain import MAX_FAILED_PASSES, Drain
from telemetry.record.clocks.interface import DeviceSpan, Drained, ManualClock
from telemetry.record.recording import RECORDER
from telemetry.stages import SpanClock, Stage
from tests.deadline import until
from tests.telemetry.recording import recorded, session

NOTE = DeviceSpan(stage=Stage.FORWARD_COMPUTE, issue_ns=5, step=3, microbatch=2)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock of sessions with ``device="cuda"`` in this test."""
    manual = ManualClock(room=100)
    monkeypatch.setattr("telemetry.record.clocks.drain.open_device_clock", lambda device: manual)
    return manual


def test_device_span_is_recorded_after_the_device_has_finished_it(tmp_path: Path, clock: ManualClock) -> None:
    before = monotonic_ns()
    with session(tmp_path, device="cuda"):
        with telemetry.step(4):
            pass
        clock.now_ns = 1000
        with telemetry.span(Stage.FORWARD_COMPUTE, microbatch=1):
            clock.now_ns = 1750
        assert "forward-compute" not in recorded(tmp_path).stages
        clock.finish()
        until(lambda: "forward-compute" in recorded(tmp_path).stages, what="the drain thread resolves the span")
    found = recorded(tmp_path).spans
    span = found[found["stage"] == Stage.FORWARD_COMPUTE][0]
    assert [int(span[name]) for name in ("start_ns", "duration_ns", "step", "microbatch")] == [1000, 750, 4, 1]
    assert before < span["issue_ns"] < monotonic_ns()
    assert span["cpu_ns"] == -1


def test_host_and_checkpoint_stages_stay_on_the_host_clock(tmp_path: Path, clock: ManualClock) -> None:
    with session(tmp_path, device="cuda"):
        for stage in (Stage.DATA_LOAD, Stage.CHECKPOINT_WRITE):
            with telemetry.span(stage):
                pass
    assert clock.calls == []
    assert recorded(tmp_path).clocks == [SpanClock.HOST] * 2


def test_a_step_is_measured_on_the_device_like_the_spans_inside_it(tmp_path: Path, clock: ManualClock) -> None:
    with session(tmp_path, device="cuda"):
        with telemetry.step(4):
            clock.now_ns = 1000
            with telemetry.span(Stage.FORWARD_COMPUTE):
                clock.now_ns = 9000
        clock.finish()
    found = recorded(tmp_path)
    assert found.stages == ["forward-compute", "step"]
    assert found.clocks == [SpanClock.DEVICE] * 2
    step = found.spans[1]
    assert [int(step[name]) for name in ("start_ns", "duration_ns", "step", "cpu_ns")] == [0, 9000, 4, -1]


def test_interrupted_step_on_a_device_is_recorded_as_a_mark_and_not_as_a_step(
    tmp_path: Path, clock: ManualClock
) -> None:
    with session(tmp_path, device="cuda") as started, suppress(KeyboardInterrupt), telemetry.step(4):
        raise KeyboardInterrupt
    found = recorded(tmp_path)
    assert (found.stages, found.marks) == ([], [("step-interrupted", "KeyboardInterrupt")])
    assert started.stats().dropped == 0


def test_step_is_measured_on_the_host_when_the_device_clock_has_no_room(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "begin", lambda: None)
    with session(tmp_path, device="cuda") as started, telemetry.step(4):
        pass
    found = recorded(tmp_path)
    assert (found.stages, found.clocks, started.stats().dropped) == (["step"], [SpanClock.HOST], 0)


def test_span_records_which_clock_measured_it(tmp_path: Path, clock: ManualClock) -> None:
    with session(tmp_path, device="cuda"):
        RECORDER.end_on_device(RECORDER.begin_on_device(), replace(NOTE, clock=SpanClock.TRANSFER))
        telemetry.record_span(Stage.FORWARD_COMPUTE, 1, 2)
        clock.finish()
    assert sorted(recorded(tmp_path).clocks) == [SpanClock.HOST, SpanClock.TRANSFER]


def test_completion_of_an_operation_without_a_stage_is_reported_and_not_recorded(
    tmp_path: Path, clock: ManualClock
) -> None:
    completed: list[str] = []
    note = replace(NOTE, stage=None, on_completed=lambda: completed.append(threading.current_thread().name))
    with session(tmp_path, device="cuda") as started:
        RECORDER.end_on_device(RECORDER.begin_on_device(), note)
        assert completed == []
        clock.finish()
        until(lambda: completed, what="the completion is noted")
        RECORDER.end_on_device(None, note)
    assert completed == ["rankscope-drain"]
    assert (recorded(tmp_path).stages, started.stats().dropped) == ([], 0)


def test_training_thread_calls_only_begin_and_end_of_the_device_clock(tmp_path: Path, clock: ManualClock) -> None:
    with session(tmp_path, device="cuda"):
        for _ in range(10):
            with telemetry.span(Stage.BACKWARD_COMPUTE):
                pass
        assert clock.calls == ["begin", "end"] * 10
        clock.finish()


def test_spans_are_dropped_and_counted_when_the_device_clock_has_no_room(tmp_path: Path, clock: ManualClock) -> None:
    with session(tmp_path, device="cuda") as started:
        for _ in range(130):
            with telemetry.span(Stage.BACKWARD_COMPUTE):
                pass
        assert started.stats().dropped == 30
        clock.finish()
    assert recorded(tmp_path).stages == ["backward-compute"] * 100


def test_permanently_failing_clock_is_given_up_and_steps_are_measured_on_the_host(
    tmp_path: Path, clock: ManualClock
) -> None:
    """There are only a few marks, and the clock is not called again."""
    with session(tmp_path, device="cuda") as started:
        failures = _fail_always(clock)
        until(lambda: "device-clock-failed" in _mark_names(tmp_path), what="the clock is given up")
        asked = len(failures)
        with telemetry.step(0), telemetry.span(Stage.FORWARD_COMPUTE):
            pass
    assert asked == len(failures) == MAX_FAILED_PASSES
    assert _mark_names(tmp_path) == ["device-clock-error"] * 6 + ["device-clock-failed"]
    assert (recorded(tmp_path).stages, started.stats().dropped) == (["step"], 1)


def test_single_clock_error_records_a_mark_and_loses_no_later_span(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session(tmp_path, device="cuda") as started:
        with monkeypatch.context() as broken:
            broken.setattr(clock, "drain", _Failing())
            until(lambda: recorded(tmp_path).marks, what="the failure is marked")
        with telemetry.span(Stage.FORWARD_COMPUTE):
            pass
        clock.finish()
        until(lambda: recorded(tmp_path).stages, what="the next span resolves")
    assert set(_mark_names(tmp_path)) == {"device-clock-error"}
    assert started.stats().dropped == 0


class _Failing:
    """Raises when it is called, and counts the calls."""

    def __init__(self) -> None:
        self.num_calls = 0

    def __call__(self) -> list[Drained]:
        self.num_calls += 1
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def __len__(self) -> int:
        return self.num_calls


def _fail_always(clock: ManualClock) -> _Failing:
    failing = _Failing()
    clock.drain = failing  # type: ignore[method-assign]
    return failing


def _mark_names(spool: Path) -> list[str]:
    return [name for name, _ in recorded(spool).marks]


def test_drain_stop_gives_up_spans_that_the_device_never_finishes(clock: ManualClock) -> None:
    clock.end(clock.begin(), NOTE)
    drain = Drain(clock, RECORDER)
    drain.start()
    assert drain.stop(within_s=0.1) == 1


def test_device_spans_given_up_at_session_end_count_as_dropped(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Drain.stop, "__kwdefaults__", {"within_s": 0.1})
    with session(tmp_path, device="cuda") as started:
        for _ in range(3):
            with telemetry.span(Stage.FORWARD_COMPUTE):
                pass
    found = recorded(tmp_path)
    assert started.stats().dropped == found.reader.live().dropped == 3
    assert found.marks == [("device-spans-given-up", "3")]
