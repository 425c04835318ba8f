"""What one span costs the training thread: ours and the others', interleaved in one run.

python -m tests.benchmarks.span_cost [--json]
"""

import importlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer

import telemetry
from telemetry import Stage
from tests.benchmarks.figures import Figure, report

BOUND_NS = 600.0
ROUNDS = 61
OURS = "rankscope span"
PAIR = "perf_counter_ns pair"
Loop = Callable[[int], None]


class SpanCost:
    """Nanoseconds a span, the empty loop subtracted, the median over rounds that take turns."""

    title = "Cost of one span on the host clock"
    command = "python -m tests.benchmarks.span_cost"

    def run(self) -> list[Figure]:
        with tempfile.TemporaryDirectory(prefix="span-cost-") as spool, _telemetry(Path(spool)), _loops() as loops:
            rounds = [{name: _time(loop, count) for name, (loop, count) in loops.items()} for _ in range(ROUNDS)]
        rounds = rounds[1:]  # the first one warms up
        costs = {name: [one[name] - one["empty loop"] for one in rounds] for name in loops if name != "empty loop"}
        ours = statistics.median(costs[OURS])
        figures = [_figure(OURS, costs[OURS], bound=BOUND_NS, rival=PAIR, rival_value=statistics.median(costs[PAIR]))]
        for name, values in costs.items():
            if name != OURS:
                figures.append(_figure(name, values, rival=OURS, rival_value=ours))
        return [*figures, *_missing(costs)]


def _figure(name: str, values: list[float], **fields: Any) -> Figure:
    tenths = statistics.quantiles(values, n=10)
    return Figure(name=name, value=statistics.median(values), unit="ns", low=tenths[0], high=tenths[-1], **fields)


def _missing(costs: dict[str, list[float]]) -> Iterator[Figure]:
    if NVRX not in costs:
        yield Figure(name=NVRX, value=None, unit="ns", note="not installed")


def _time(loop: Loop, count: int) -> float:
    began = perf_counter_ns()
    loop(count)
    return (perf_counter_ns() - began) / count


@contextmanager
def _telemetry(spool: Path) -> Iterator[None]:
    session = telemetry.start("span-cost", spool=spool, agent=False)
    assert session.recording
    try:
        yield
    finally:
        telemetry.stop()


@contextmanager
def _loops() -> Iterator[dict[str, tuple[Loop, int]]]:
    """Name -> a loop of so many spans, and how many: the dear ones fewer."""
    batched, provider = _batched_tracer()
    loops: dict[str, tuple[Loop, int]] = {
        "empty loop": (_empty, 2000),
        OURS: (_ours, 2000),
        "rankscope span, all fields": (_ours_with_fields, 2000),
        "rankscope span with processor time": (_ours_timed, 1000),
        PAIR: (_clock_pairs, 2000),
        "torch.profiler.record_function": (_around(lambda: torch.profiler.record_function("forward")), 300),
        "OpenTelemetry SDK, no processor": (_around(_opened_by(TracerProvider().get_tracer("bench"))), 100),
        "OpenTelemetry SDK, BatchSpanProcessor": (_around(_opened_by(batched)), 100),
    }
    section = _nvrx_section()
    if section is not None:
        loops[NVRX] = (_around(section), 100)
    try:
        yield loops
    finally:
        provider.shutdown()


def _empty(count: int) -> None:
    for _ in range(count):
        pass


def _ours(count: int) -> None:
    span = telemetry.span
    for _ in range(count):
        with span(Stage.FORWARD_SEND):
            pass


def _ours_with_fields(count: int) -> None:
    span = telemetry.span
    for number in range(count):
        with span(Stage.FORWARD_SEND, microbatch=number, chunk=1, size_bytes=4096, peer=3):
            pass


def _ours_timed(count: int) -> None:
    span = telemetry.span
    for _ in range(count):
        with span(Stage.FORWARD_COMPUTE):
            pass


def _clock_pairs(count: int) -> None:
    clock = perf_counter_ns
    for _ in range(count):
        clock()
        clock()


def _around(make: Callable[[], AbstractContextManager[Any]]) -> Loop:
    def loop(count: int) -> None:
        for _ in range(count):
            with make():
                pass

    return loop


def _opened_by(tracer: Tracer) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: tracer.start_as_current_span("forward")


class _Nowhere(SpanExporter):
    def export(self, spans: Any) -> SpanExportResult:
        del spans
        return SpanExportResult.SUCCESS


def _batched_tracer() -> tuple[Tracer, TracerProvider]:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
    return provider.get_tracer("bench"), provider


NVRX = "nvidia-resiliency-ext detection_section"


def _nvrx_section() -> Callable[[], AbstractContextManager[Any]] | None:
    """Its straggler detector without CUDA profiling; None where it is not installed."""
    try:
        straggler = importlib.import_module("nvidia_resiliency_ext.straggler")
    except ImportError:
        return None
    straggler.Detector.initialize(gather_on_rank0=False)
    return lambda: straggler.Detector.detection_section("forward", profile_cuda=False)


def main() -> int:
    return report(SpanCost.title, SpanCost().run(), as_json="--json" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
