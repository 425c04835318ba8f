"""CUDA events as a clock, over a twin that enforces CUDA's rules (``manual_cuda``)."""

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

import telemetry
from telemetry.clocks.cuda import CudaClock
from telemetry.clocks.cuda_reference import ASK_NS, FIRST_WITHIN_NS, PAUSE_S, PERIOD_NS, QUICK_ASKS
from telemetry.clocks.interface import CapturedSpan, ClockError, CompletedSpan, DeviceSpan, Drained, ResolvedSpan
from telemetry.session import RECORDER
from telemetry.stages import SpanClock, Stage
from tests.deadline import until
from tests.telemetry.manual_cuda import ForbiddenCall, ManualCuda
from tests.telemetry.recording import recorded, session

MS = 1_000_000
NOTE = DeviceSpan(stage=Stage.FORWARD_COMPUTE, issue_ns=5, step=3, microbatch=2)
NUM_DRAINS = 10_000


class ManualTime:
    """The host's clock, moved by hand and by pauses."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self.pauses: list[float] = []

    def now(self) -> int:
        self.now_ns += 100
        return self.now_ns

    def pause(self, for_s: float) -> None:
        self.pauses.append(for_s)
        self.now_ns += max(2_000, round(for_s * 1e9))


class Rank:
    """A clock over a twin, both in manual time."""

    def __init__(self, **options: object) -> None:
        self.time = ManualTime()
        self.cuda = ManualCuda(now=self.time.now, **options)  # type: ignore[arg-type]
        self.clock = CudaClock(self.cuda, now=self.time.now, pause=self.time.pause)

    def work(self, for_ns: int, span: DeviceSpan = NOTE) -> None:
        """A span of so much work."""
        ticket = self.clock.begin()
        self.cuda.keep_busy(for_ns)
        if ticket is not None:
            self.clock.end(ticket, span)

    def drain(self, *, after_ns: int = 0) -> list[Drained]:
        self.time.now_ns += after_ns
        return self.clock.drain()


def resolved(drained: list[Drained]) -> list[ResolvedSpan]:
    return [one for one in drained if isinstance(one, ResolvedSpan)]


# --- time -----------------------------------------------------------------------------------------------------------


def test_a_span_is_placed_on_the_hosts_clock() -> None:
    rank = Rank()
    issued_ns = rank.time.now_ns
    rank.cuda.keep_busy(5 * MS)
    rank.work(20 * MS)
    assert rank.drain() == []
    (span,) = resolved(rank.drain(after_ns=25 * MS))
    assert span.span is NOTE
    assert abs(span.duration_ns - 20 * MS) < 1000
    assert abs(span.start_ns - (issued_ns + 5 * MS)) < 5000


def test_spans_of_several_streams_come_back_as_each_stream_gets_there() -> None:
    rank = Rank()
    slow, fast = rank.cuda.Stream(), rank.cuda.Stream()
    for stream, for_ns in ((slow, 50 * MS), (fast, MS)):
        with rank.cuda.stream(stream):
            rank.work(for_ns)
    (first,) = resolved(rank.drain(after_ns=2 * MS))
    (second,) = resolved(rank.drain(after_ns=50 * MS))
    assert (first.duration_ns, second.duration_ns) == pytest.approx((MS, 50 * MS), abs=1000)


def test_events_are_used_again() -> None:
    rank = Rank()
    rank.work(0)
    rank.drain(after_ns=1000)
    made = rank.cuda.made_events
    for _ in range(50):
        rank.work(0)
        assert len(resolved(rank.drain(after_ns=1000))) == 1
    assert rank.cuda.made_events == made


def test_a_full_queue_refuses_spans() -> None:
    cuda = ManualCuda()
    clock = CudaClock(cuda, max_pending=2)
    cuda.keep_busy(3_600_000 * MS)
    for _ in range(2):
        ticket = clock.begin()
        assert ticket is not None
        clock.end(ticket, NOTE)
    assert clock.begin() is None


# --- the reference --------------------------------------------------------------------------------------------------


def test_the_training_thread_neither_asks_nor_waits_as_the_clock_opens() -> None:
    rank = Rank()
    rank.work(0)
    assert (rank.cuda.made_events, rank.cuda.streams, rank.time.pauses) == (2, [], [])


def test_each_question_that_is_not_answered_is_followed_by_a_pause() -> None:
    """The interpreter's lock is free while the device is not there yet, and a pass takes a bounded time."""
    rank = Rank(one_queue=True)
    rank.work(3_600_000 * MS)
    begun_ns = rank.time.now_ns
    assert rank.drain() == []
    assert rank.time.now_ns - begun_ns < 1.2 * ASK_NS
    assert rank.time.pauses[:QUICK_ASKS] == [0.0] * QUICK_ASKS
    assert set(rank.time.pauses[QUICK_ASKS:]) == {PAUSE_S}


def test_a_bracket_is_tight_although_the_device_answers_late() -> None:
    """The event of the clock waits behind 15 ms of other work: longer than one pass asks."""
    rank = Rank(one_queue=True)
    rank.cuda.keep_busy(15 * MS)
    rank.work(0)
    assert rank.drain() == []
    (span,) = resolved(rank.drain(after_ns=MS))
    assert abs(span.start_ns - rank.cuda.made[0].at_ns) <= rank.clock.error_ns(0) < 0.2 * MS


def test_spans_wait_for_a_tight_reference_and_after_a_second_for_any() -> None:
    """The event of the clock happens between two passes each time."""
    rank = Rank(one_queue=True)
    rank.work(0)
    begun_ns = rank.time.now_ns
    found: list[ResolvedSpan] = []
    while not found:
        rank.cuda.keep_busy(15 * MS)
        found = resolved(rank.drain())
        rank.time.now_ns += 20 * MS
    assert 0 < rank.time.now_ns - begun_ns - FIRST_WITHIN_NS < 100 * MS
    assert 9 * MS < rank.clock.error_ns(0) < 20 * MS
    assert abs(found[0].start_ns - rank.cuda.made[0].at_ns) <= rank.clock.error_ns(0)


def test_the_stated_error_grows_until_the_reference_is_renewed() -> None:
    rank = Rank()
    rank.work(0)
    rank.drain(after_ns=1000)
    fresh_ns = rank.clock.error_ns(0)
    rank.time.now_ns += 10 * PERIOD_NS
    assert rank.clock.error_ns(0) == pytest.approx(fresh_ns + MS, abs=1000)
    rank.drain()
    assert rank.clock.error_ns(0) < 2 * fresh_ns


# --- captures -------------------------------------------------------------------------------------------------------


@pytest.fixture
def always_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pass records and asks events of the clock's own."""
    monkeypatch.setattr("telemetry.clocks.cuda_reference.PERIOD_NS", 0)


@pytest.mark.usefixtures("always_renewed")
def test_ten_thousand_drains_disturb_no_capture() -> None:
    """On another thread than the one that captures, with spans around and between the captures."""
    cuda = ManualCuda()
    clock = CudaClock(cuda)
    drained: list[Drained] = []
    passes = iter(range(NUM_DRAINS))
    thread = threading.Thread(target=lambda: drained.extend(one for _ in passes for one in clock.drain()))
    _span(clock)
    thread.start()
    graphs = issued = 0
    while thread.is_alive():
        with cuda.graph():
            _span(clock)
            until(lambda asked=cuda.asked_in_captures: cuda.asked_in_captures > asked or not thread.is_alive(), every=0)
        _span(clock)
        graphs, issued = graphs + 1, issued + 1
    thread.join()
    assert cuda.forbidden == []
    assert cuda.asked_in_captures > NUM_DRAINS / 10
    drained += clock.drain()
    assert len(resolved(drained)) == 1 + issued
    assert len([one for one in drained if isinstance(one, CapturedSpan)]) == graphs
    assert len(drained) == 1 + issued + graphs


def test_the_twin_catches_a_drain_in_the_strict_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above rests on."""
    cuda = ManualCuda()
    clock = CudaClock(cuda)
    _span(clock)
    monkeypatch.setattr(cuda, "relaxed_captures", nullcontext)
    with pytest.raises(ForbiddenCall, match="invalidated"), cuda.graph():
        clock.drain()
    assert cuda.forbidden != []


def test_a_drain_leaves_the_mode_of_its_thread_as_it_was() -> None:
    """The last drains run on the thread that trains."""
    cuda = ManualCuda()
    clock = CudaClock(cuda)
    _span(clock)
    clock.drain()
    with pytest.raises(ForbiddenCall, match="invalidated"), cuda.graph(), pytest.raises(ForbiddenCall):
        cuda.Event(enable_timing=True).query()


@pytest.mark.parametrize("ends_inside", [True, False])
def test_a_span_across_the_edge_of_a_capture_is_dropped_and_its_events_stay_outside(ends_inside: bool) -> None:
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


def test_a_span_around_a_whole_capture_and_one_around_a_replay_are_timed() -> None:
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


def test_captured_spans_are_counted_and_explained(tmp_path: Path, twin: ManualCuda) -> None:
    with session(tmp_path, device="cuda") as started:
        with twin.graph(), telemetry.span(Stage.FORWARD_COMPUTE):
            pass
        until(lambda: started.stats().dropped, what="the span is counted")
    (name, text), *_ = recorded(tmp_path).marks
    assert name == "spans-dropped"
    assert "replay" in text
    assert started.stats().dropped == 1


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["query", "elapsed_time"])
def test_one_error_loses_its_own_span_only(call: str) -> None:
    rank = Rank()
    for number in range(5):
        ticket = rank.clock.begin()
        start = rank.cuda.current_stream().last
        rank.clock.end(ticket, replace(NOTE, microbatch=number))  # type: ignore[arg-type]
        if number == 2:
            failing = rank.cuda.current_stream().last if call == "query" else start
            failing.fail_next(call)  # type: ignore[union-attr]
    drained = rank.drain(after_ns=1000)
    assert [one.span.microbatch for one in resolved(drained)] == [0, 1, 3, 4]
    assert [one.span.microbatch for one in drained if isinstance(one, ClockError) and one.span] == [2]
    assert rank.clock.pending() == 0


def test_events_of_a_failed_span_are_not_used_again() -> None:
    rank = Rank()
    rank.work(0)
    start, end = rank.cuda.made
    end.fail_next("query")
    rank.drain(after_ns=1000)
    recorded_ns = start.at_ns, end.at_ns
    for _ in range(10):
        rank.work(0)
        rank.drain(after_ns=1000)
    assert (start.at_ns, end.at_ns) == recorded_ns


@pytest.mark.parametrize("call", ["record", "query"])
def test_an_error_while_the_reference_is_renewed_loses_no_span(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = Rank()
    rank.work(0)
    rank.drain(after_ns=1000)
    rank.work(0)
    rank.time.now_ns += 2 * PERIOD_NS
    monkeypatch.setattr(rank.cuda, "next_fails", call)
    assert [type(one) for one in rank.drain()] == [ClockError, ResolvedSpan]


def test_a_reference_that_fails_is_replaced() -> None:
    rank = Rank()
    rank.work(0)
    rank.drain(after_ns=1000)
    for event in rank.cuda.made[2:]:
        event.fail_next("elapsed_time", times=1000)
    rank.work(0)
    assert [type(one) for one in rank.drain(after_ns=1000)] == [ClockError, CompletedSpan]
    rank.work(0)
    assert [type(one) for one in rank.drain(after_ns=1000)] == [ClockError, ResolvedSpan]
    rank.work(0)
    (span,) = resolved(rank.drain(after_ns=1000))
    assert abs(span.start_ns - rank.time.now_ns) < 10_000


@pytest.mark.parametrize(("call", "event"), [("query", 1), ("elapsed_time", 0)])
def test_completion_is_noted_also_where_timing_failed(call: str, event: int) -> None:
    rank = Rank()
    rank.work(5 * MS, replace(NOTE, on_completed=list))
    rank.cuda.made[event].fail_next(call)
    drained = rank.drain() + rank.drain(after_ns=10 * MS) + rank.drain(after_ns=10 * MS)
    assert [type(one) for one in drained] == [ClockError, CompletedSpan]


def test_a_device_that_is_lost_is_not_asked_for_ever() -> None:
    rank = Rank()
    rank.work(MS, replace(NOTE, on_completed=list))
    rank.drain()
    rank.cuda.is_lost = True
    drained = [one for _ in range(10) for one in rank.drain()]
    assert all(isinstance(one, ClockError) for one in drained)
    assert rank.clock.pending() == 0


def test_a_transient_error_costs_a_session_one_span_and_one_mark(tmp_path: Path, twin: ManualCuda) -> None:
    with session(tmp_path, device="cuda") as started:
        twin.keep_busy(50 * MS)
        for number in range(3):
            with telemetry.span(Stage.FORWARD_COMPUTE, microbatch=number):
                pass
            if number == 1:
                twin.current_stream().fail_last("query")
        until(lambda: len(recorded(tmp_path).spans) == 2, what="the other spans resolve")
    found = recorded(tmp_path)
    assert found.spans["microbatch"].tolist() == [0, 2]
    assert [name for name, _ in found.marks] == ["device-clock-error"]
    assert started.stats().dropped == 1


# --- devices --------------------------------------------------------------------------------------------------------


def test_a_later_set_device_is_followed_and_device_0_is_left_alone() -> None:
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


def test_a_program_that_names_the_device_of_each_tensor_is_timed_on_it() -> None:
    """Device 0 stays the current one, and gets no context."""
    rank = Rank(num_devices=4, fresh=True)
    rank.cuda.keep_busy(5 * MS, rank.cuda.current_stream(2))
    _span(rank.clock)
    (span,) = resolved(rank.drain(after_ns=10 * MS))
    assert abs(span.start_ns - rank.cuda.current_stream(2).busy_until_ns) < 5000
    assert rank.cuda.contexts == {2}


def test_a_span_is_refused_where_nobody_knows_which_device_works() -> None:
    rank = Rank(num_devices=4, fresh=True)
    for index in (2, 3):
        rank.cuda.keep_busy(MS, rank.cuda.current_stream(index))
    assert rank.clock.begin() is None
    assert rank.cuda.contexts == {2, 3}


def test_a_session_times_on_the_host_until_the_rank_works_on_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = ManualCuda(num_devices=4, fresh=True)
    _use(twin, monkeypatch)
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


def test_a_loop_without_steps_gets_its_device_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = ManualCuda(fresh=True)
    _use(twin, monkeypatch)
    with session(tmp_path), telemetry.span(Stage.OPTIMIZER):
        twin.set_device(0)
        until(RECORDER.on_device, what="the clock is opened")
    assert recorded(tmp_path).clocks == [SpanClock.HOST]


def test_a_clock_that_cannot_be_opened_costs_a_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks: Iterator[None] = iter([None])
    monkeypatch.setattr("telemetry.session.open_device_clock", lambda device: next(clocks))
    monkeypatch.setattr("telemetry.session.expects_device", lambda device: True)
    with session(tmp_path):
        for number in range(3):
            with telemetry.step(number):
                pass
    found = recorded(tmp_path)
    assert (found.stages, [name for name, _ in found.marks]) == (["step"] * 3, ["device-clock-failed"])


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> ManualCuda:
    """What a session finds on this machine."""
    made = ManualCuda()
    _use(made, monkeypatch)
    return made


def _use(twin: ManualCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = CudaClock(twin)
    monkeypatch.setattr("telemetry.session.open_device_clock", lambda device: clock if clock.is_used() else None)
    monkeypatch.setattr("telemetry.session.expects_device", lambda device: True)


def _span(clock: CudaClock) -> None:
    ticket = clock.begin()
    assert ticket is not None
    clock.end(ticket, NOTE)
