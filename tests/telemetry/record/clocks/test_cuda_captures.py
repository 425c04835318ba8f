"""CUDA graph captures while a device clock runs, on a twin that enforces CUDA's rules (``manual_cuda``)."""

import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

import telemetry
from telemetry.record.clocks.cuda import CudaClock
from telemetry.record.clocks.interface import CapturedSpan, Drained
from telemetry.stages import Stage
from tests.deadline import until
from tests.telemetry.record.clocks.cuda_rank import MS, NOTE, Rank, resolved, time_a_span, use_in_sessions
from tests.telemetry.record.clocks.manual_cuda import ForbiddenCall, ManualCuda
from tests.telemetry.recording import recorded, session

NUM_DRAINS = 10_000


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> ManualCuda:
    made = ManualCuda()
    use_in_sessions(made, monkeypatch)
    return made


@pytest.fixture
def always_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each drain pass records and queries reference events of the clock."""
    monkeypatch.setattr("telemetry.record.clocks.cuda_reference.PERIOD_NS", 0)


@pytest.mark.usefixtures("always_renewed")
def test_drains_on_another_thread_do_not_invalidate_graph_captures() -> None:
    """Spans are issued inside and between the captures."""
    cuda = ManualCuda()
    clock = CudaClock(cuda)
    drained: list[Drained] = []
    passes = iter(range(NUM_DRAINS))
    thread = threading.Thread(target=lambda: drained.extend(one for _ in passes for one in clock.drain()))
    time_a_span(clock)
    thread.start()
    graphs = issued = 0
    while thread.is_alive():
        with cuda.graph():
            time_a_span(clock)
            until(lambda asked=cuda.asked_in_captures: cuda.asked_in_captures > asked or not thread.is_alive(), every=0)
        time_a_span(clock)
        graphs, issued = graphs + 1, issued + 1
    thread.join()
    assert cuda.forbidden == []
    assert cuda.asked_in_captures > NUM_DRAINS / 10
    drained += clock.drain()
    assert len(resolved(drained)) == 1 + issued
    assert len([one for one in drained if isinstance(one, CapturedSpan)]) == graphs
    assert len(drained) == 1 + issued + graphs


def test_cuda_twin_rejects_a_drain_in_strict_capture_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above relies on this."""
    cuda = ManualCuda()
    clock = CudaClock(cuda)
    time_a_span(clock)
    monkeypatch.setattr(cuda, "relaxed_captures", nullcontext)
    with pytest.raises(ForbiddenCall, match="invalidated"), cuda.graph():
        clock.drain()
    assert cuda.forbidden != []


def test_drain_restores_the_capture_mode_of_its_thread() -> None:
    """The last drains run on the training thread."""
    cuda = ManualCuda()
    clock = CudaClock(cuda)
    time_a_span(clock)
    clock.drain()
    with pytest.raises(ForbiddenCall, match="invalidated"), cuda.graph(), pytest.raises(ForbiddenCall):
        cuda.Event(enable_timing=True).query()


@pytest.mark.parametrize("ends_inside", [True, False])
def test_span_across_a_capture_boundary_is_dropped_and_its_events_stay_outside_the_graph(ends_inside: bool) -> None:
    rank = Rank()
    completed: list[int] = []
    note = replace(NOTE, on_completed=lambda: completed.append(1))
    if ends_inside:
        ticket = rank.clock.begin()
        with rank.cuda.graph():
            rank.clock.end(ticket, note)  # type: ignore[arg-type]
    else:
        with rank.cuda.graph():
            ticket = rank.clock.begin()
        rank.clock.end(ticket, note)  # type: ignore[arg-type]
    assert rank.drain() == [CapturedSpan(span=note)]
    assert all(event.capture is None for event in rank.cuda.made)
    rank.work(MS)
    assert len(resolved(rank.drain(after_ns=2 * MS))) == 1


def test_captured_spans_over_the_limit_are_refused_and_the_others_are_returned() -> None:
    """The caller counts refused spans."""
    cuda = ManualCuda()
    clock = CudaClock(cuda, max_pending=2)
    with cuda.graph():
        for _ in range(2):
            time_a_span(clock)
        assert clock.begin() is None
    assert clock.drain() == [CapturedSpan(span=NOTE)] * 2


def test_spans_around_a_capture_and_around_a_replay_are_timed() -> None:
    rank = Rank()
    around = rank.clock.begin()
    with rank.cuda.graph() as graph:
        rank.cuda.keep_busy(7 * MS)
    rank.clock.end(around, NOTE)  # type: ignore[arg-type]
    ticket = rank.clock.begin()
    rank.cuda.replay(graph)
    rank.clock.end(ticket, NOTE)  # type: ignore[arg-type]
    capture, replay = resolved(rank.drain(after_ns=20 * MS))
    assert (capture.duration_ns, replay.duration_ns) == pytest.approx((0, 7 * MS), abs=2000)


def test_captured_span_is_counted_as_dropped_and_explained_in_a_mark(tmp_path: Path, twin: ManualCuda) -> None:
    with session(tmp_path, device="cuda") as started:
        with twin.graph(), telemetry.span(Stage.FORWARD_COMPUTE):
            pass
        until(lambda: started.stats().dropped, what="the span is counted")
    (name, text), *_ = recorded(tmp_path).marks
    assert name == "spans-dropped"
    assert "replay" in text
    assert started.stats().dropped == 1
