"""Errors of CUDA events, tested on a twin: only the spans concerned are lost."""

from dataclasses import replace
from pathlib import Path

import pytest

import telemetry
from telemetry.record.clocks.cuda_reference import PERIOD_NS
from telemetry.record.clocks.interface import ClockError, CompletedSpan, ResolvedSpan
from telemetry.stages import Stage
from tests.deadline import until
from tests.telemetry.record.clocks.cuda_rank import MS, NOTE, Rank, resolved, use_in_sessions
from tests.telemetry.record.clocks.manual_cuda import ManualCuda
from tests.telemetry.recording import recorded, session


@pytest.fixture
def twin(monkeypatch: pytest.MonkeyPatch) -> ManualCuda:
    made = ManualCuda()
    use_in_sessions(made, monkeypatch)
    return made


@pytest.mark.parametrize("call", ["query", "elapsed_time"])
def test_event_error_loses_only_its_own_span(call: str) -> None:
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


def test_events_of_a_failed_span_are_not_reused() -> None:
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


def test_failed_clock_reference_is_replaced() -> None:
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
def test_completion_is_reported_when_timing_fails(call: str, event: int) -> None:
    rank = Rank()
    rank.work(5 * MS, replace(NOTE, on_completed=list))
    rank.cuda.made[event].fail_next(call)
    drained = rank.drain() + rank.drain(after_ns=10 * MS) + rank.drain(after_ns=10 * MS)
    assert [type(one) for one in drained] == [ClockError, CompletedSpan]


def test_lost_device_is_not_queried_forever() -> None:
    rank = Rank()
    rank.work(MS, replace(NOTE, on_completed=list))
    rank.drain()
    rank.cuda.is_lost = True
    drained = [one for _ in range(10) for one in rank.drain()]
    assert {type(one) for one in drained} == {ClockError}
    assert rank.clock.pending() == 0


def test_transient_cuda_error_drops_one_span_and_records_one_mark(tmp_path: Path, twin: ManualCuda) -> None:
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
