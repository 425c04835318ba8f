"""CUDA events as a clock, tested on a twin: times of spans and the error of these times."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from telemetry.record.clocks.cuda import CudaClock
from telemetry.record.clocks.cuda_reference import FIRST_WITHIN_NS, PAUSE_S, PERIOD_NS, QUERY_NS, QUICK_QUERIES
from telemetry.record.clocks.interface import ResolvedSpan
from tests.telemetry.record.clocks.cuda_rank import MS, NOTE, Rank, resolved
from tests.telemetry.record.clocks.manual_cuda import ManualCuda


def test_device_span_is_converted_to_host_time() -> None:
    rank = Rank()
    issued_ns = rank.time.now_ns
    rank.cuda.keep_busy(5 * MS)
    rank.work(20 * MS)
    assert rank.drain() == []
    (span,) = resolved(rank.drain(after_ns=25 * MS))
    assert span.span is NOTE
    assert abs(span.duration_ns - 20 * MS) < 1000
    assert abs(span.start_ns - (issued_ns + 5 * MS)) < 5000


def test_span_is_returned_as_soon_as_its_own_stream_has_finished_it() -> None:
    rank = Rank()
    slow, fast = rank.cuda.Stream(), rank.cuda.Stream()
    for stream, for_ns in ((slow, 50 * MS), (fast, MS)):
        with rank.cuda.stream(stream):
            rank.work(for_ns)
    (first,) = resolved(rank.drain(after_ns=2 * MS))
    (second,) = resolved(rank.drain(after_ns=50 * MS))
    assert (first.duration_ns, second.duration_ns) == pytest.approx((MS, 50 * MS), abs=1000)


def test_cuda_events_are_reused() -> None:
    rank = Rank()
    rank.work(0)
    rank.drain(after_ns=1000)
    made = rank.cuda.made_events
    for _ in range(50):
        rank.work(0)
        assert len(resolved(rank.drain(after_ns=1000))) == 1
    assert rank.cuda.made_events == made


def test_clock_refuses_new_spans_when_its_queue_is_full() -> None:
    cuda = ManualCuda()
    clock = CudaClock(cuda, max_pending=2)
    cuda.keep_busy(3_600_000 * MS)
    for _ in range(2):
        ticket = clock.begin()
        assert ticket is not None
        clock.end(ticket, NOTE)
    assert clock.begin() is None


def test_blocked_stream_does_not_delay_spans_of_other_streams() -> None:
    rank = Rank()
    rank.cuda.keep_busy(3_600_000 * MS)
    for _ in range(200):
        rank.work(0)
    with rank.cuda.stream(rank.cuda.Stream()):
        rank.work(MS)
    (span,) = resolved(rank.drain(after_ns=2 * MS))
    assert span.duration_ns == pytest.approx(MS, abs=1000)
    assert rank.clock.pending() == 200


def test_spans_of_several_streams_are_returned_in_the_order_of_their_ends() -> None:
    rank = Rank()
    other = rank.cuda.Stream()
    for number in range(6):
        with rank.cuda.stream(other) if number % 2 else nullcontext():
            rank.work(0, replace(NOTE, microbatch=number))
    assert [one.span.microbatch for one in resolved(rank.drain(after_ns=MS))] == list(range(6))


def test_training_thread_does_not_query_or_wait_when_the_clock_opens() -> None:
    rank = Rank()
    rank.work(0)
    assert (rank.cuda.made_events, rank.cuda.streams, rank.time.pauses) == (2, [], [])


def test_each_query_of_an_unfinished_event_is_followed_by_a_pause() -> None:
    """The interpreter's lock is free while the device is busy. A drain pass takes a bounded time."""
    rank = Rank(one_queue=True)
    rank.work(3_600_000 * MS)
    begun_ns = rank.time.now_ns
    assert rank.drain() == []
    assert rank.time.now_ns - begun_ns < 1.2 * QUERY_NS
    assert rank.time.pauses[:QUICK_QUERIES] == [0.0] * QUICK_QUERIES
    assert set(rank.time.pauses[QUICK_QUERIES:]) == {PAUSE_S}


def test_clock_bracket_is_tight_when_the_device_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event of the clock waits behind 15 ms of other work. One drain pass queries it for a shorter time."""
    monkeypatch.setattr("telemetry.record.clocks.cuda_reference.TRIES", 1)
    rank = Rank(one_queue=True)
    rank.cuda.keep_busy(15 * MS)
    rank.work(0)
    assert rank.drain() == []
    (span,) = resolved(rank.drain(after_ns=MS))
    assert abs(span.start_ns - rank.cuda.made[0].at_ns) <= rank.clock.error_ns(0) < 0.2 * MS


def test_spans_wait_at_most_one_second_for_a_tight_reference() -> None:
    """The event of the clock always completes between two drain passes. After one second, it is used all the same."""
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
