"""How many records marks tell as lost, for the collector's counters."""

import pyarrow as pa
import pyarrow.compute as pc

from telemetry.records import RECORDS_LOST

_NUMBER = r"^(?P<records>\d{1,12}) "
"""A batch of the largest ones still has a sum of 64 bits."""


def records_lost(marks: pa.Table) -> int:
    """The sum over the marks of lost records among ``marks``: their text begins with the number."""
    texts = marks["text"].filter(pc.equal(marks["name"], RECORDS_LOST))
    told = pc.struct_field(pc.extract_regex(texts, _NUMBER), "records")
    return pc.sum(told.cast(pa.int64())).as_py() or 0
