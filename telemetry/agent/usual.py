"""What a rank usually issues where it stands now: what it issued at the same place of the step before.

Members of a group that disagree on an operation are two against none where the group has two members. Then a rank's
own past tells: a step is a loop, and the one that does something else than a step ago has left the path.

    tp group, step 7   ... #294 all-gather   #295 reduce-scatter ...     24 operations a step
              step 8   ... #318 reduce-scatter                           usually all-gather: this rank skipped one
"""

import numpy as np
from numpy.typing import NDArray

from telemetry.errors import UnreadableError
from telemetry.record.layout import RecordKind
from telemetry.record.reader import RankReader
from telemetry.record.state_page import LiveState, Operation
from telemetry.stages import STAGE_BY_LABEL, Stage, Stream
from telemetry.topology import Axis

LOOK_BACK_RECORDS = 50_000
NEWEST_STEPS = 32
STREAM_OF: dict[Axis, Stream] = {"tp": Stream.TP, "dp": Stream.DP}
"""Axes whose collectives are recorded."""

Usual = tuple[Stage, int]
"""Stage and bytes."""


def usual_operations(reader: RankReader, state: LiveState) -> list[Usual | None]:
    """For each operation of the page, in order: what was issued one step before; None where that is not known."""
    try:
        spans = _newest_spans(reader)
    except (UnreadableError, OSError):
        return [None] * len(state.operations)
    return [_usual(spans, state.step, one) for one in state.operations]


def usual_steps_ns(reader: RankReader) -> list[int]:
    """How long the newest steps took, without the very first, which is always long."""
    try:
        spans = _newest_spans(reader)
    except (UnreadableError, OSError):
        return []
    steps = spans[(spans["stage"] == Stage.STEP) & (spans["step"] > 0)]
    return [int(duration_ns) for duration_ns in steps["duration_ns"][-NEWEST_STEPS:]]


def _newest_spans(reader: RankReader) -> NDArray[np.void]:
    end = reader.end_seq(reader.acked())
    parts, at = [], max(0, end - LOOK_BACK_RECORDS)
    while at < end:
        block = reader.read(at)
        if not len(block.records):
            break
        parts.append(block.records)
        at = block.next_seq
    records = np.concatenate(parts) if parts else reader.read(end).records
    spans: NDArray[np.void] = records[records["kind"] == RecordKind.SPAN]
    return spans


def _usual(spans: NDArray[np.void], step: int, one: Operation) -> Usual | None:
    stream = STREAM_OF.get(one.axis) if one.axis is not None and one.peer < 0 else None
    if stream is None:
        return None
    codes = [int(stage) for stage in STAGE_BY_LABEL.values() if stage.stream is stream]
    own = spans[np.isin(spans["stage"], codes) & (spans["op_seq"] > 0)]
    before, earlier = (own["op_seq"][own["step"] == step - back] for back in (1, 2))
    if not len(before) or not len(earlier):
        return None
    period = int(before.max()) - int(earlier.max())
    found = own[own["op_seq"] == one.issued - period]
    if period <= 0 or len(found) != 1:
        return None
    stage = next(stage for stage in STAGE_BY_LABEL.values() if int(stage) == found["stage"][0])
    return stage, int(found["size_bytes"][0])
