"""The lanes of a rank's row in the timeline, from the top: the streams of each lane, and its height.

A lane without spans takes no room. Columns are sent as base64 of narrow integers, and times in ticks that fit 32 bits.
"""

import base64
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from telemetry.stages import Stream
from ui.dashboard.records import Ints

NARROW = ("u1", "i1", "u2", "i2", "u4", "i4")
Prop = dict[str, object]


def tick_of(length_ns: int) -> int:
    """Nanoseconds of a tick: the least power of ten in which a length fits 32 bits."""
    tick = 1
    while length_ns // tick >= 2**32:
        tick *= 10
    return tick


def in_ticks(start_ns: Ints, duration_ns: Ints, tick_ns: int) -> tuple[Ints, Ints]:
    """Both ends are rounded alike, so that neighbours never overlap."""
    start = start_ns // tick_ns
    return start, (start_ns + duration_ns) // tick_ns - start


def packed(column: npt.NDArray[np.integer]) -> dict[str, str]:
    """A column as base64 of its narrowest integers, little-endian; ``f8`` where none hold it."""
    low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    fitting = (one for one in NARROW if np.iinfo(one).min <= low and high <= np.iinfo(one).max)
    dtype = next(fitting, "f8")
    raw = np.ascontiguousarray(column.astype(f"<{dtype}")).tobytes()
    return {"dtype": dtype, "bdata": base64.b64encode(raw).decode()}


class Lane(NamedTuple):
    """``weight``: height, in shares of the row's."""

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
"""Below them, where the ideal timeline is shown: work, and what ranks do together."""
OTHER_LANE = len(LANES) - 1
"""Where a stream goes that this version does not know."""


def lane_of(stream: Ints) -> Ints:
    """Index into ``LANES`` of each stream code."""
    lane = np.full(len(stream), OTHER_LANE, dtype=np.int64)
    for index, one in enumerate(LANES):
        lane[np.isin(stream, [int(code) for code in one.streams])] = index
    return lane
