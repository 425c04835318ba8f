"""CUDA events as a clock, on a real device."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic_ns

import pytest
import torch

import telemetry
from telemetry.clocks.cuda import open_cuda_clock
from telemetry.clocks.interface import DeviceSpan
from telemetry.stages import Stage
from tests.deadline import until
from tests.telemetry.recording import recorded, session

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
NOTE = DeviceSpan(stage=Stage.FORWARD_COMPUTE, issue_ns=0, step=0)
STEPS, MICROBATCHES = 20, 4


def matmuls(count: int = 20) -> None:
    side = torch.ones(2048, 2048, device="cuda")
    for _ in range(count):
        side = side @ side


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Calls that make the host wait for the device, or one stream for another, while a loop runs."""
    calls: list[str] = []
    for owner, name in (
        (torch.cuda, "synchronize"),
        (torch.cuda.Event, "synchronize"),
        (torch.cuda.Event, "wait"),
        (torch.cuda.Stream, "synchronize"),
        (torch.cuda.Stream, "wait_stream"),
        (torch.cuda.Stream, "wait_event"),
    ):
        monkeypatch.setattr(owner, name, lambda *_, name=name: calls.append(name))
    return calls


def test_the_hot_path_never_synchronises(tmp_path: Path, counted: list[str]) -> None:
    with session(tmp_path, device="cuda") as started:
        assert started.recording
        for number in range(STEPS):
            with telemetry.step(number):
                for microbatch in range(MICROBATCHES):
                    with telemetry.span(Stage.FORWARD_COMPUTE, microbatch=microbatch):
                        matmuls()
    assert counted == []
    assert recorded(tmp_path).stages.count("forward-compute") == STEPS * MICROBATCHES


def test_issuing_does_not_wait_for_the_work(tmp_path: Path) -> None:
    matmuls()
    torch.cuda.synchronize()
    with session(tmp_path, device="cuda"):
        with telemetry.span(Stage.FORWARD_COMPUTE):
            torch.cuda._sleep(500_000_000)
        issued = monotonic_ns()
    spans = recorded(tmp_path).spans
    (span,) = spans[spans["stage"] == Stage.FORWARD_COMPUTE]
    assert span["duration_ns"] > 50_000_000
    assert span["start_ns"] + span["duration_ns"] > issued


def test_a_span_lies_where_the_host_saw_it() -> None:
    clock = open_cuda_clock()
    matmuls()
    torch.cuda.synchronize()
    before = monotonic_ns()
    ticket = clock.begin()
    matmuls()
    clock.end(ticket, NOTE)
    torch.cuda.synchronize()
    after = monotonic_ns()
    (resolved,) = clock.drain()
    slack = 2 * clock.tie.error_ns + 100_000
    assert before - slack <= resolved.start_ns
    assert resolved.start_ns + resolved.duration_ns <= after + slack


def test_events_of_several_streams_come_back_in_any_order() -> None:
    clock = open_cuda_clock()
    for stream in (torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            ticket = clock.begin()
            matmuls()
            clock.end(ticket, NOTE)
    drained: list[object] = []
    until(lambda: drained.extend(clock.drain()) or len(drained) == 2, what="both spans resolve")


def test_nothing_is_timed_while_a_graph_is_captured(tmp_path: Path) -> None:
    weight = torch.ones(256, 256, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with session(tmp_path, device="cuda") as started:
        with torch.cuda.graph(graph), telemetry.span(Stage.FORWARD_COMPUTE):
            weight @ weight
        graph.replay()
        assert started.stats().dropped == 1
