"""Several CUDA devices, on a twin: spans are timed on the device that works. No other device gets a context."""

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import telemetry
from telemetry.record.clocks.interface import Drained
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.record.recording import RECORDER
from telemetry.records import GPU_UUID, RankIdentity
from telemetry.stages import SpanClock, Stage
from tests.deadline import until
from tests.telemetry.record.clocks.cuda_rank import MS, NOTE, Rank, resolved, time_a_span, use_in_sessions
from tests.telemetry.record.clocks.manual_cuda import ManualCuda
from tests.telemetry.recording import recorded, session


def test_spans_are_timed_on_the_current_device_and_device_0_gets_no_context() -> None:
    rank = Rank(num_devices=4, fresh=True)
    for index in (3, 1):
        rank.cuda.set_device(index)
        rank.work(index * MS)
    found: list[Drained] = []
    rank.time.now_ns += 10 * MS
    thread = threading.Thread(target=lambda: found.extend(rank.drain()))  # its current device is 0
    thread.start()
    thread.join()
    assert sorted(one.duration_ns for one in resolved(found)) == pytest.approx([MS, 3 * MS], abs=2000)
    assert rank.cuda.contexts == {1, 3}


def test_a_span_ends_on_the_device_that_it_began_on() -> None:
    rank = Rank(num_devices=2)
    ticket = rank.clock.begin()
    rank.cuda.keep_busy(MS)
    rank.cuda.set_device(1)
    rank.clock.end(ticket, NOTE)  # type: ignore[arg-type]
    (span,) = resolved(rank.drain(after_ns=2 * MS))
    assert span.duration_ns == pytest.approx(MS, abs=2000)


def test_span_is_timed_on_the_only_device_in_use_when_device_0_is_current() -> None:
    """The program names the device of each tensor. Device 0 gets no context."""
    rank = Rank(num_devices=4, fresh=True)
    rank.cuda.keep_busy(5 * MS, rank.cuda.current_stream(2))
    time_a_span(rank.clock)
    (span,) = resolved(rank.drain(after_ns=10 * MS))
    assert abs(span.start_ns - rank.cuda.current_stream(2).busy_until_ns) < 5000
    assert rank.cuda.contexts == {2}


def test_span_is_refused_when_the_working_device_is_ambiguous() -> None:
    rank = Rank(num_devices=4, fresh=True)
    for index in (2, 3):
        rank.cuda.keep_busy(MS, rank.cuda.current_stream(index))
    assert rank.clock.begin() is None
    assert rank.cuda.contexts == {2, 3}


def test_session_uses_the_host_clock_until_the_rank_uses_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = ManualCuda(num_devices=4, fresh=True)
    use_in_sessions(twin, monkeypatch)
    with session(tmp_path):
        for number, index in enumerate((None, 3, 1)):
            if index is not None:
                twin.set_device(index)
            with telemetry.step(number), telemetry.span(Stage.FORWARD_COMPUTE):
                assert twin.initialized == (index is not None)
    found = recorded(tmp_path)
    assert found.stages == ["forward-compute", "step"] * 3
    assert found.clocks == [SpanClock.HOST] * 2 + [SpanClock.DEVICE] * 4
    assert twin.contexts == {1, 3}


def test_a_session_reports_the_gpu_of_its_first_span(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that only has a context is not reported. Nothing is reported before the process uses a device."""
    twin = ManualCuda(num_devices=4, fresh=True)
    use_in_sessions(twin, monkeypatch)
    with session(tmp_path) as started:
        assert GPU_UUID not in identity_in(tmp_path).meta
        assert not twin.initialized
        before_ns = identity_in(tmp_path).started_ns
        twin.use(0)
        twin.set_device(2)
        with telemetry.step(0):
            until(lambda: GPU_UUID in identity_in(tmp_path).meta, what="the identity is written again")
        assert started.identity is not None
    found = identity_in(tmp_path)
    assert found.meta == started.identity.meta
    assert found.meta[GPU_UUID] == "gpu-of-index-2"
    assert found.started_ns == before_ns + 1  # the newest identity of a rank counts
    assert recorded(tmp_path).reader.live().identity_ns == found.started_ns
    assert twin.contexts == {0, 2}


def test_gpu_uuid_given_by_the_user_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_in_sessions(ManualCuda(), monkeypatch)
    with session(tmp_path, meta={GPU_UUID: "given"}), telemetry.step(0):
        pass
    assert identity_in(tmp_path).meta[GPU_UUID] == "given"


def test_missing_gpu_uuid_records_one_clock_error_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = ManualCuda()
    use_in_sessions(twin, monkeypatch)
    monkeypatch.setattr(twin, "get_device_properties", lambda index: SimpleNamespace())
    with session(tmp_path):
        for number in range(2):
            with telemetry.step(number):
                pass
    found = recorded(tmp_path)
    assert (found.clocks, [name for name, _ in found.marks]) == ([SpanClock.DEVICE] * 2, ["device-clock-error"])


def identity_in(spool: Path) -> RankIdentity:
    (folder,) = find_rank_dirs(spool)
    return RankReader(folder).identity()


def test_device_clock_is_opened_in_a_loop_without_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = ManualCuda(fresh=True)
    use_in_sessions(twin, monkeypatch)
    with session(tmp_path), telemetry.span(Stage.OPTIMIZER):
        twin.set_device(0)
        until(RECORDER.on_device, what="the clock is opened")
    assert recorded(tmp_path).clocks == [SpanClock.HOST]


def test_device_clock_that_cannot_be_opened_records_one_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks: Iterator[None] = iter([None])
    monkeypatch.setattr("telemetry.record.clocks.drain.open_device_clock", lambda device: next(clocks))
    monkeypatch.setattr("telemetry.record.clocks.drain.expects_device", lambda device: True)
    with session(tmp_path):
        for number in range(3):
            with telemetry.step(number):
                pass
    found = recorded(tmp_path)
    assert (found.stages, [name for name, _ in found.marks]) == (["step"] * 3, ["device-clock-failed"])
