"""Wall time as a sequence of pieces, each with one class: no gap, no overlap.

    plain             aaaaaaaaaaaaaaaaaaaaa
    painted with b    aaaabbbbbbbbaaaaaaaaa      a later class replaces earlier ones
    painted with c    aaaabbbcccccccaaaaaaa

All times are integers, so the pieces add up exactly.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Piece(NamedTuple):
    """A time range with the number of its class."""

    begin_ns: int
    end_ns: int
    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """``edges_ns``: begin of each piece, and the end of the last one (n + 1). ``codes``: class of each piece (n)."""

    edges_ns: Ints
    codes: Ints

    @classmethod
    def plain(cls, begin_ns: int, end_ns: int, code: int) -> "Timeline":
        """A timeline of one piece. If ``end_ns`` is before ``begin_ns``, the piece is empty."""
        return cls(edges_ns=np.array([begin_ns, max(begin_ns, end_ns)], np.int64), codes=np.array([code], np.int64))

    @property
    def begin_ns(self) -> int:
        return int(self.edges_ns[0])

    @property
    def end_ns(self) -> int:
        return int(self.edges_ns[-1])

    def painted(self, pieces: Iterable[Piece]) -> "Timeline":
        """This timeline with ``pieces`` on top. If two pieces overlap, the first ends where the later one begins."""
        ordered = sorted(pieces, key=lambda piece: piece.begin_ns)
        if not ordered:
            return self
        begin_ns, end_ns, codes = (np.array(values, np.int64) for values in zip(*ordered, strict=True))
        end_ns[:-1] = np.minimum(end_ns[:-1], begin_ns[1:])
        return self.painted_all(begin_ns, end_ns, codes)

    def painted_all(self, begin_ns: Ints, end_ns: Ints, codes: Ints) -> "Timeline":
        """This timeline with ranges on top. They are in order of time and do not overlap. Empty ones have no effect."""
        begin_ns, end_ns = (np.clip(times, self.begin_ns, self.end_ns) for times in (begin_ns, end_ns))
        kept = begin_ns < end_ns
        begin_ns, end_ns, codes = begin_ns[kept], end_ns[kept], codes[kept]
        if not len(codes):
            return self
        edges = np.unique(np.concatenate([self.edges_ns, begin_ns, end_ns]))
        at = edges[:-1]
        below = self.codes[np.searchsorted(self.edges_ns, at, side="right") - 1]
        index = np.searchsorted(begin_ns, at, side="right") - 1
        is_above = (index >= 0) & (at < end_ns[index])
        return Timeline(edges_ns=edges, codes=np.where(is_above, codes[index], below))

    def totals_ns(self, num_classes: int, first_ns: int | None = None, last_ns: int | None = None) -> list[int]:
        """Time in each class, exactly; only between ``first_ns`` and ``last_ns`` if given."""
        first_ns = self.begin_ns if first_ns is None else first_ns
        last_ns = self.end_ns if last_ns is None else max(first_ns, last_ns)
        lengths = np.diff(np.clip(self.edges_ns, first_ns, last_ns))
        totals = np.zeros(num_classes, np.int64)
        np.add.at(totals, self.codes, lengths)
        return [int(total) for total in totals]

    def columns_ns(self, num_classes: int, edges_ns: Ints) -> npt.NDArray[np.float64]:
        """Time in each class (row) between two neighbours of ``edges_ns`` (column). For pictures."""
        lengths, rows = np.diff(self.edges_ns), []
        for code in range(num_classes):
            until = np.concatenate([[0], np.cumsum(np.where(self.codes == code, lengths, 0))])
            since = (self.edges_ns - self.begin_ns).astype(np.float64)
            rows.append(np.diff(np.interp((edges_ns - self.begin_ns).astype(np.float64), since, until)))
        return np.array(rows)
