"""Spans as columns: what timelines and traces are drawn from."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanColumns:
    """Spans as columns, ordered by rank, then start. Units and -1 as in ``telemetry.tables.SPANS``."""

    rank: Ints
    seq: Ints
    stage: Ints
    stream: Ints
    step: Ints
    microbatch: Ints
    chunk: Ints
    peer: Ints
    op_seq: Ints
    start_ns: Ints
    duration_ns: Ints
    cpu_ns: Ints
    issue_ns: Ints
    size_bytes: Ints

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def end_ns(self) -> Ints:
        return self.start_ns + self.duration_ns

    def where(self, chosen: npt.NDArray[np.bool_] | Ints | slice) -> "SpanColumns":
        """The chosen rows, by mask, by index or by slice."""
        return SpanColumns(**{name: getattr(self, name)[chosen] for name in SPAN_COLUMNS})


SPAN_COLUMNS: tuple[str, ...] = SpanColumns.__slots__


def columns_of(spans: pa.Table) -> SpanColumns:
    """The answer to the query ``Spans``, in its order."""
    return SpanColumns(**{name: np.asarray(spans[name].to_numpy(), dtype=np.int64) for name in SPAN_COLUMNS})
