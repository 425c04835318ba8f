"""Spans on a device's clock: issued now, resolved later, and never waited for."""

from pathlib import Path
from time import monotonic_ns

import pytest

import telemetry
from telemetry.clocks.cuda import CudaClock
from telemetry.clocks.drain import Drain
from telemetry.clocks.interface import DeviceSpan
from telemetry.clocks.manual import ManualClock
from telemetry.session import RECORDER
from telemetry.stages import Stage
from tests.deadline import until
from tests.telemetry.manual_cuda import ManualCuda
from tests.telemetry.recording import recorded, session

MS = 1_000_000
NOTE = DeviceSpan(stage=Stage.FORWARD_COMPUTE, issue_ns=5, step=3, microbatch=2)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """What a session that asks for CUDA gets in this test."""
    manual = ManualClock(room=100)
    monkeypatch.setattr("telemetry.session.open_device_clock", lambda device: manual)
    return manual


def test_a_device_span_is_recorded_once_the_device_is_done(tmp_path: Path, clock: ManualClock) -> None:
    before = monotonic_ns()
    with session(tmp_path, device="cuda"), telemetry.step(4):
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
    with session(tmp_path, device="cuda"), telemetry.step(0):
        for stage in (Stage.DATA_LOAD, Stage.CHECKPOINT_WRITE):
            with telemetry.span(stage):
                pass
    assert clock.calls == []


def test_the_training_thread_asks_the_clock_for_nothing_but_begin_and_end(tmp_path: Path, clock: ManualClock) -> None:
    with session(tmp_path, device="cuda"):
        for _ in range(10):
            with telemetry.span(Stage.BACKWARD_COMPUTE):
                pass
        assert clock.calls == ["begin", "end"] * 10
        clock.finish()


def test_a_clock_without_room_drops_and_counts(tmp_path: Path, clock: ManualClock) -> None:
    with session(tmp_path, device="cuda") as started:
        for _ in range(130):
            with telemetry.span(Stage.BACKWARD_COMPUTE):
                pass
        assert started.stats().dropped == 30
        clock.finish()
    assert recorded(tmp_path).stages == ["backward-compute"] * 100


def test_a_clock_that_fails_costs_spans_and_nothing_else(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with session(tmp_path, device="cuda") as started:
        monkeypatch.setattr(clock, "drain", fail)
        until(lambda: recorded(tmp_path).marks, what="the failure is marked")
        for broken in ("begin", "end"):
            monkeypatch.setattr(clock, broken, fail)
            with telemetry.span(Stage.FORWARD_COMPUTE):
                pass
        assert started.stats().dropped == 2
    assert [name for name, _ in recorded(tmp_path).marks] == ["device-clock-failed"]


def test_stopping_gives_up_on_a_device_that_never_answers(clock: ManualClock) -> None:
    clock.end(clock.begin(), NOTE)
    drain = Drain(clock, RECORDER)
    drain.start()
    assert drain.stop(within_s=0.1) == 1


def test_spans_given_up_at_the_end_count_as_dropped(
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


def test_an_event_that_fails_loses_no_count_of_the_others() -> None:
    cuda = ManualCuda()
    clock = CudaClock(cuda)
    tickets = [clock.begin() for _ in range(3)]
    for ticket in tickets:
        clock.end(ticket, NOTE)

    def fail(_: object) -> float:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    tickets[1].elapsed_time = fail
    assert len(clock.drain()) == 1
    assert clock.pending() == 2
    with pytest.raises(RuntimeError):
        clock.drain()
    assert clock.pending() == 2


def test_a_cuda_span_is_placed_on_the_hosts_clock() -> None:
    cuda = ManualCuda()
    clock = CudaClock(cuda)
    issued = monotonic_ns()
    cuda.keep_busy(5 * MS)
    ticket = clock.begin()
    cuda.keep_busy(20 * MS)
    clock.end(ticket, NOTE)
    assert clock.drain() == []
    until(lambda: monotonic_ns() > cuda.busy_until_ns, every=0.001)
    (resolved,) = clock.drain()
    assert resolved.span is NOTE
    assert abs(resolved.duration_ns - 20 * MS) < 1000
    assert abs(resolved.start_ns - (issued + 5 * MS)) < MS


def test_cuda_events_are_used_again() -> None:
    cuda = ManualCuda()
    clock = CudaClock(cuda)
    made = cuda.made_events
    for _ in range(50):
        clock.end(clock.begin(), NOTE)
        assert len(clock.drain()) == 1
    assert cuda.made_events == made + 2


def test_a_full_queue_and_a_captured_stream_refuse_spans() -> None:
    cuda = ManualCuda()
    clock = CudaClock(cuda, max_pending=2)
    cuda.keep_busy(3600_000 * MS)
    for _ in range(2):
        clock.end(clock.begin(), NOTE)
    assert clock.begin() is None
    roomy = CudaClock(cuda)
    cuda.capturing = True
    assert roomy.begin() is None


def test_a_reference_is_renewed_as_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telemetry.clocks.cuda.CALIBRATION_PERIOD_NS", 0)
    cuda = ManualCuda()
    clock = CudaClock(cuda)
    for _ in range(20):
        clock.drain()
        clock.end(clock.begin(), NOTE)
    assert len(clock.drain()) == 1
    assert clock.tie.error_ns < MS
