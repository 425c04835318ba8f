"""Cost of one span for the training thread: rankscope and its rivals, interleaved in one run.

python -m tests.benchmarks.span_cost [--json]
"""

import importlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

import torch
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

import telemetry
from telemetry import Stage
from tests.benchmarks.figures import Figure, report

BOUND_NS = 600.0
ROUNDS = 601
WARM_UP = 20
OURS = "rankscope span"
PAIR = "perf_counter_ns pair"
EMPTY = "empty loop"
NVRX = "nvidia-resiliency-ext detection_section"
Loop = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A way to time a piece of code: a loop of ``count`` spans. It takes a tenth of a millisecond, so that most loops
    run without an interruption by the scheduler."""

    loop: Loop
    count: int
    settle: Callable[[], object] = list
    """Called after each turn, untimed, so that background work of the contender does not slow the next one."""


class SpanCost:
    """Nanoseconds per span without the empty loop: the median over rounds in which all contenders take turns."""

    title = "Cost of one span on the host clock"
    command = "python -m tests.benchmarks.span_cost"

    def run(self) -> list[Figure]:
        with tempfile.TemporaryDirectory(prefix="span-cost-") as spool, _telemetry(Path(spool)), _contenders() as those:
            rounds = [{name: _take_turn(one) for name, one in those.items()} for _ in range(ROUNDS)]
        rounds = rounds[WARM_UP:]
        costs = {name: [one[name] - one[EMPTY] for one in rounds] for name in those if name != EMPTY}
        ours, pair = statistics.median(costs[OURS]), statistics.median(costs[PAIR])
        figures = [_figure(OURS, costs.pop(OURS), bound=BOUND_NS, rival=PAIR, rival_value=pair)]
        figures += [_figure(name, values, rival=OURS, rival_value=ours) for name, values in costs.items()]
        if NVRX not in costs:
            figures.append(
                Figure(name=NVRX, value=None, unit="ns", note="not installed (pip install nvidia-resiliency-ext)")
            )
        return figures


def _figure(name: str, values: list[float], **fields: Any) -> Figure:
    tenths = statistics.quantiles(values, n=10)
    return Figure(name=name, value=statistics.median(values), unit="ns", low=tenths[0], high=tenths[-1], **fields)


def _take_turn(contender: Contender) -> float:
    contender.loop(contender.count // 5)  # the cache contents of the previous contender must not count
    began = perf_counter_ns()
    contender.loop(contender.count)
    took = perf_counter_ns() - began
    contender.settle()
    return took / contender.count


@contextmanager
def _telemetry(spool: Path) -> Iterator[None]:
    session = telemetry.start("span-cost", spool=spool, agent=False)
    assert session.recording
    try:
        yield
    finally:
        telemetry.stop()


@contextmanager
def _contenders() -> Iterator[dict[str, Contender]]:
    """Contenders by name. Expensive ones have shorter loops."""
    bare = TracerProvider().get_tracer("bench")
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
    batched = provider.get_tracer("bench")
    those = {
        EMPTY: Contender(loop=_empty, count=150),
        OURS: Contender(loop=_ours, count=150),
        "rankscope span, by label": Contender(loop=_ours_by_label, count=150),
        "rankscope span, Stage.NAME looked up each time": Contender(loop=_ours_looked_up, count=150),
        "rankscope span, all fields": Contender(loop=_ours_with_fields, count=150),
        "rankscope span with processor time": Contender(loop=_ours_timed, count=50),
        PAIR: Contender(loop=_clock_pairs, count=150),
        "torch.profiler.record_function": Contender(
            loop=_around(lambda: torch.profiler.record_function("forward")), count=20
        ),
        "OpenTelemetry SDK, no processor": Contender(
            loop=_around(lambda: bare.start_as_current_span("forward")), count=10
        ),
        "OpenTelemetry SDK, BatchSpanProcessor": Contender(
            loop=_around(lambda: batched.start_as_current_span("forward")), count=10, settle=provider.force_flush
        ),
    }
    section = _nvrx_section()
    if section is not None:
        those[NVRX] = Contender(loop=_around(section), count=10)
    try:
        yield those
    finally:
        provider.shutdown()


def _empty(count: int) -> None:
    for _ in range(count):
        pass


def _ours(count: int) -> None:
    span, stage = telemetry.span, Stage.FORWARD_SEND
    for _ in range(count):
        with span(stage):
            pass


def _ours_by_label(count: int) -> None:
    for _ in range(count):
        with telemetry.span("forward-send"):
            pass


def _ours_looked_up(count: int) -> None:
    """In Python 3.11 the member of an enum takes 60 ns to find."""
    for _ in range(count):
        with telemetry.span(Stage.FORWARD_SEND):
            pass


def _ours_with_fields(count: int) -> None:
    span, stage = telemetry.span, Stage.FORWARD_SEND
    for number in range(count):
        with span(stage, microbatch=number, chunk=1, size_bytes=4096, peer=3):
            pass


def _ours_timed(count: int) -> None:
    """Compute stages on the host clock carry the processor time of the thread."""
    span, stage = telemetry.span, Stage.FORWARD_COMPUTE
    for _ in range(count):
        with span(stage):
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


class _Nowhere(SpanExporter):
    def export(self, spans: Any) -> SpanExportResult:
        del spans
        return SpanExportResult.SUCCESS


def _nvrx_section() -> Callable[[], AbstractContextManager[Any]] | None:
    """A section of its straggler detector, timed on the host. None: not installed. The detector loads CUPTI at its
    start. On a machine without CUDA an idle profiler replaces it, which such sections never call."""
    if not torch.cuda.is_available():
        idle = SimpleNamespace(initialize=list, start=list, stop=list, reset=list, get_stats=dict, shutdown=list)
        sys.modules["nvrx_cupti_module"] = SimpleNamespace(CuptiProfiler=lambda **_: idle)  # type: ignore[assignment]
    try:
        straggler = importlib.import_module("nvidia_resiliency_ext.straggler")
    except ImportError:
        return None
    straggler.Detector.initialize(gather_on_rank0=False)
    return lambda: straggler.Detector.detection_section("forward", profile_cuda=False)


BENCHMARK = SpanCost()


def main() -> int:
    """Print the figures. The exit status is 1 if the bound is broken."""
    return report(BENCHMARK.title, BENCHMARK.run(), as_json="--json" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
