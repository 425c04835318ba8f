"""How many records the marks of lost records report: for the collector's counters and its check of numbers."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from telemetry.records import RECORDS_LOST

_NUMBER = r"^(?P<records>\d{1,12}) "
"""A batch of the largest ones still has a sum of 64 bits."""


def records_lost(marks: pa.Table) -> int:
    """The sum over the marks of lost records among ``marks``."""
    return int(lost_in(marks).sum())


def lost_in(marks: pa.Table) -> npt.NDArray[np.uint64]:
    """For each mark, how many records it reports as lost: its text begins with the number. 0 for other marks."""
    reported = pc.struct_field(pc.extract_regex(marks["text"], _NUMBER), "records").cast(pa.uint64())
    numbers = pc.if_else(pc.equal(marks["name"], RECORDS_LOST), pc.fill_null(reported, 0), 0)
    lost: npt.NDArray[np.uint64] = numbers.cast(pa.uint64()).to_numpy()
    return lost
