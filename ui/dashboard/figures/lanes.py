"""The lanes of a rank's row in the timeline, from the top: which streams each holds, and how high it is.

A lane without spans takes no room.
"""

from typing import NamedTuple

import numpy as np

from telemetry.stages import Stream
from ui.dashboard.records import Ints


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
