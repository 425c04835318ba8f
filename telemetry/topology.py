"""The 3D grid of ranks: the one truth that trainer groups and diagnosis both derive from.

    rank = (dp_index * pp + pp_index) * tp + tp_index        tp varies fastest, dp slowest

    dp=2 pp=2 tp=2            tp0 tp1
                   dp0 pp0     0   1
                   dp0 pp1     2   3
                   dp1 pp0     4   5
                   dp1 pp1     6   7

Sequence parallel shares the tp axis.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from telemetry.errors import UsageError

Axis = Literal["dp", "pp", "tp"]
AXES: tuple[Axis, ...] = ("dp", "pp", "tp")
MAX_RANKS = 2**20
"""Beyond any job there is; a grid above it is a mistake or an attack."""


class Place(NamedTuple):
    """Coordinates of a rank in the grid."""

    dp: int
    pp: int
    tp: int

    def __str__(self) -> str:
        return f"dp{self.dp} pp{self.pp} tp{self.tp}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Degrees of data, pipeline and tensor parallelism.

    Raises:
        UsageError: a degree is below one, or the grid beyond a million ranks.
    """

    dp: int = 1
    pp: int = 1
    tp: int = 1

    def __post_init__(self) -> None:
        for axis in AXES:
            if getattr(self, axis) < 1:
                raise UsageError(f"{axis} is {getattr(self, axis)}", hint=f"every degree is at least 1: try --{axis} 1")
        if self.world_size > MAX_RANKS:
            raise UsageError(f"a grid of {self.world_size} ranks", hint=f"at most {MAX_RANKS} are held")

    @property
    def world_size(self) -> int:
        return self.dp * self.pp * self.tp

    def place(self, rank: int) -> Place:
        """Coordinates of ``rank``."""
        assert 0 <= rank < self.world_size, (rank, self)
        return Place(rank // (self.pp * self.tp), rank // self.tp % self.pp, rank % self.tp)

    def rank(self, place: Place) -> int:
        """The rank at ``place``: the inverse of :meth:`place`."""
        return (place.dp * self.pp + place.pp) * self.tp + place.tp

    def group(self, rank: int, *, along: Axis) -> tuple[int, ...]:
        """Ranks that share every coordinate of ``rank`` but the one ``along`` the axis, in order of that axis."""
        here = self.place(rank)
        degree = {"dp": self.dp, "pp": self.pp, "tp": self.tp}[along]
        return tuple(self.rank(here._replace(**{along: index})) for index in range(degree))

    def groups(self, *, along: Axis) -> Iterator[tuple[int, ...]]:
        """Every group along the axis, by its first rank."""
        for rank in range(self.world_size):
            if getattr(self.place(rank), along) == 0:
                yield self.group(rank, along=along)
