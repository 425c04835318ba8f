"""What a training script calls; :mod:`rankscope` and :mod:`telemetry` show it under their names."""

from telemetry.record.recording import SessionStats
from telemetry.record.session import RECORDER, Session, start, stop
from telemetry.stages import STAGE_BY_LABEL, Stage, StageClass, Stream
from telemetry.topology import Topology

span = RECORDER.span
"""``span(stage, microbatch=-1, chunk=-1, size_bytes=0, peer=-1)``: a context manager. ``stage`` is a ``Stage`` or its
label."""
step = RECORDER.step
"""``step(number)``: a context manager, the span of a whole step; what is recorded from now on belongs to it. A step
that an exception interrupts does not count as a step: it gets the mark ``step-interrupted``."""
mark = RECORDER.mark
"""``mark(name, text="")``: something happened now."""
sample = RECORDER.sample
"""``sample(metric, value, step=None)``: a number as of now; of a step gone by when ``step`` names it."""
record_span = RECORDER.record_span
"""``record_span(stage, start_ns, duration_ns, *, microbatch, chunk, size_bytes, peer, op_seq, cpu_ns, issue_ns,
clock)``: a span that is over, on CLOCK_MONOTONIC (``time.monotonic_ns``); from any thread."""

__all__ = [
    "STAGE_BY_LABEL",
    "Session",
    "SessionStats",
    "Stage",
    "StageClass",
    "Stream",
    "Topology",
    "mark",
    "record_span",
    "sample",
    "span",
    "start",
    "step",
    "stop",
]
