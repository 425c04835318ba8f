"""The ideal timeline below the measured one, as data for the canvas in the browser; and the lanes of both.

    {"lanes":   [first, one past the last],        lanes of the picture that the strip uses
     "rows":    [0, 0, 1, 1],                      by row of the picture: index of its pipeline rank among ``groups``
     "groups":  2,
     "begin": 40, "end": 700, "lost": 120,         ticks: the ideal step, and how much longer the step took
     "count": 9, "columns": {"row": ... (a group), "lane": ..., "start": ..., "duration": ..., "waited": ...,
                             "stage": ..., "occurrence": ..., "microbatch": ...}}       ordered by group, lane, start

All ranks of one pipeline rank share one strip. An ideal bar is the ``occurrence``-th of its stage, so that the browser
finds the measured bar for it. Columns are sent as base64 of narrow integers, and times in ticks that fit 32 bits.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from diagnose.whatif.ideal_steps import IdealOperations, IdealSteps
from telemetry.stages import STAGE_BY_CODE, Stage, StageClass, Stream
from ui.dashboard.records import Ints, RunFacts, SpanColumns

NARROW = ("u1", "i1", "u2", "i2", "u4", "i4")
Prop = dict[str, object]


class Lane(NamedTuple):
    """A lane of a rank's row. ``weight``: its relative height. A lane without spans takes no space."""

    name: str
    streams: tuple[Stream, ...]
    weight: float


LANES: tuple[Lane, ...] = (
    Lane("compute", (Stream.COMPUTE,), 3.0),
    Lane("tp", (Stream.TP,), 1.3),
    Lane("cp", (Stream.CP,), 1.3),
    Lane("ep", (Stream.EP,), 1.3),
    Lane("pp", (Stream.PP_FORWARD, Stream.PP_BACKWARD), 1.6),
    Lane("dp", (Stream.DP,), 1.6),
    Lane("host", (Stream.HOST,), 1.0),
)
IDEAL_LANES: tuple[Lane, ...] = (Lane("ideal", (), 2.4), Lane("", (), 1.1))
"""Lanes of the ideal timeline, below the others: first compute, then communication."""
OTHER_LANE = len(LANES) - 1
"""The lane of streams that this version does not know."""


def lane_of(stream: Ints) -> Ints:
    """Index into ``LANES`` of each stream code."""
    lanes = np.full(len(stream), OTHER_LANE, dtype=np.int64)
    for index, lane in enumerate(LANES):
        lanes[np.isin(stream, [int(code) for code in lane.streams])] = index
    return lanes


def tick_of(length_ns: int) -> int:
    """Nanoseconds of a tick: the smallest power of ten with which the length fits 32 bits."""
    tick = 1
    while length_ns // tick >= 2**32:
        tick *= 10
    return tick


def in_ticks(start_ns: Ints, duration_ns: Ints, tick_ns: int) -> tuple[Ints, Ints]:
    """Start and duration. Both ends are rounded down, so that neighbours never overlap."""
    start = start_ns // tick_ns
    return start, (start_ns + duration_ns) // tick_ns - start


def packed(column: npt.NDArray[np.integer]) -> dict[str, str]:
    """A column as base64 of its narrowest integer type, little-endian. ``f8`` if no type is wide enough."""
    low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    fitting = (name for name in NARROW if np.iinfo(name).min <= low and high <= np.iinfo(name).max)
    dtype = next(fitting, "f8")
    raw = np.ascontiguousarray(column.astype(f"<{dtype}")).tobytes()
    return {"dtype": dtype, "bdata": base64.b64encode(raw).decode()}


@dataclass(frozen=True, slots=True, kw_only=True)
class IdealStrip:
    """The ideal step beside measured spans. All its times are scaled to the measured step (``IdealSteps.scale_of``)."""

    operations: IdealOperations
    begin_ns: int
    """Begin of the measured step on the clock of the spans. The ideal step begins at the same time."""
    ideal_ns: int
    lost_ns: int
    """The measured time minus the ideal time. Negative for a step that was faster than usual."""

    @property
    def end_ns(self) -> int:
        return self.begin_ns + self.ideal_ns + max(self.lost_ns, 0)


def ideal_strip(ideal: IdealSteps, step: int, spans: SpanColumns) -> IdealStrip | None:
    """The ideal timeline of ``step``, whose measured spans are ``spans``. None if none of their stages is replayed."""
    replayed = np.isin(spans.stage, ideal.operations.stage)
    if not replayed.any():
        return None
    took_ns, alike_ns = ideal.cost_of(step)
    return IdealStrip(
        operations=ideal.operations.scaled(ideal.scale_of(step)),
        begin_ns=int(spans.start_ns[replayed].min()),
        ideal_ns=round(alike_ns),
        lost_ns=round(took_ns - alike_ns),
    )


def left_out(ideal: IdealSteps, spans: SpanColumns) -> list[str]:
    """Names of the stages of ``spans`` that the replay has no operations for, except the step itself."""
    codes = np.setdiff1d(spans.stage, [*ideal.operations.stage.tolist(), int(Stage.STEP)])
    return [STAGE_BY_CODE[code].label for code in codes.tolist() if code in STAGE_BY_CODE]


def stages_of(strip: IdealStrip, ranks: Sequence[int], facts: RunFacts) -> Ints:
    """Codes of the stages in the strips of some ranks."""
    return np.unique(strip.operations.stage[np.isin(strip.operations.pp, _pipeline_ranks(ranks, facts))])


def ideal_duration_ns(strip: IdealStrip, span: SpanColumns, loaded: SpanColumns, facts: RunFacts) -> int | None:
    """The duration of one span (a single row) in the ideal step. None if ``loaded`` lacks spans of its stage."""
    same_stage = loaded.where((loaded.rank == span.rank[0]) & (loaded.stage == span.stage[0]))
    operations = strip.operations
    pp = facts.topology.index["pp"][span.rank[0]]
    rows = np.flatnonzero((operations.pp == pp) & (operations.stage == span.stage[0]))
    if len(rows) != len(same_stage):
        return None
    occurrence = int((same_stage.start_ns < span.start_ns[0]).sum())
    return int(operations.duration_ns[rows[operations.occurrence[rows] == occurrence]][0])


def packed_strip(strip: IdealStrip, ranks: Sequence[int], facts: RunFacts, origin_ns: int, tick_ns: int) -> Prop:
    """The strip in the format above. ``ranks``: the rows of the picture, from the top."""
    pps, group = np.unique(_pipeline_ranks(ranks, facts), return_inverse=True)
    operations = strip.operations
    mine = np.flatnonzero(np.isin(operations.pp, pps))
    row = np.searchsorted(pps, operations.pp[mine])
    communication = [code for code, stage in STAGE_BY_CODE.items() if stage.stage_class is StageClass.COMMUNICATION]
    lane = len(LANES) + np.isin(operations.stage[mine], communication).astype(np.int64)
    order = np.lexsort((operations.begin_ns[mine], lane, row))
    chosen, begin_ns = mine[order], strip.begin_ns - origin_ns
    start, duration = in_ticks(begin_ns + operations.begin_ns[chosen], operations.duration_ns[chosen], tick_ns)
    columns = {
        "row": row[order],
        "lane": lane[order],
        "start": start,
        "duration": duration,
        "waited": operations.waited_ns[chosen] // tick_ns,
        "stage": operations.stage[chosen],
        "occurrence": operations.occurrence[chosen],
        "microbatch": operations.microbatch[chosen],
    }
    return {
        "lanes": [len(LANES), len(LANES) + len(IDEAL_LANES)],
        "rows": group.tolist(),
        "groups": len(pps),
        "begin": begin_ns // tick_ns,
        "end": (begin_ns + strip.ideal_ns) // tick_ns,
        "lost": max(strip.lost_ns, 0) // tick_ns,
        "count": len(chosen),
        "columns": {name: packed(column) for name, column in columns.items()},
    }


def _pipeline_ranks(ranks: Sequence[int], facts: RunFacts) -> Ints:
    return facts.topology.index["pp"][np.asarray(ranks, dtype=np.int64)]
