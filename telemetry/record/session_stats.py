"""Statistics of a session: what it recorded, and what its spans cost."""

from dataclasses import dataclass
from statistics import median
from time import monotonic_ns

from telemetry.record.sink import Recorder
from telemetry.stages import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStats:
    """What a session did, and what it cost the training thread."""

    records: int
    dropped: int
    span_cost_ns: int
    """Cost of one span on the host clock, measured as the session started."""
    own_cost_ns: int
    """``span_cost_ns`` times the records."""


def measure_span_cost(recorder: Recorder, *, batches: int = 9, spans: int = 50) -> int:
    """Nanoseconds that one span on the host clock takes here and now. To be asked while nothing is recorded."""
    return int(median(_time_spans(recorder, spans) / spans for _ in range(batches)))


def _time_spans(recorder: Recorder, count: int) -> int:
    span = recorder.span
    began = monotonic_ns()
    for _ in range(count):
        with span(Stage.DATA_LOAD):
            pass
    return monotonic_ns() - began
