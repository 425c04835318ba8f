"""The mesh of ranks. Only this module converts ranks to coordinates and back.

A mesh is a list of named axes with their degrees, the slowest axis first, as torch's DeviceMesh has it:

    pp=2, dp_shard=2, tp=2         tp0 tp1           rank = (pp_index * 2 + dp_shard_index) * 2 + tp_index
               pp0 dp_shard0        0   1
               pp0 dp_shard1        2   3
               pp1 dp_shard0        4   5
               pp1 dp_shard1        6   7

Analyses see every mesh as a *grid* of three directions, whatever the order of its axes: ``pp`` and ``tp`` are the axes
of that name, and ``dp`` counts the combinations of all other axes (``dp``, ``dp_replicate``, ``dp_shard``, ``cp``,
``ep``), the slowest first. Ranks along ``dp`` do the same work on other data. Sequence parallel shares the tp axis.

A group of ranks that a collective spans is a set of axes, as a bit mask: bit ``i`` stands for ``mesh[i]``.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from telemetry.errors import UsageError

Axis = Literal["dp", "pp", "tp"]
AXES: tuple[Axis, ...] = ("dp", "pp", "tp")
"""Directions of the grid."""
MESH_AXES = ("pp", "dp", "dp_replicate", "dp_shard", "cp", "tp", "ep")
"""Names that an axis of a mesh may have."""
MAX_RANKS = 2**20
"""Largest number of ranks. A larger grid is a mistake or an attack."""
Mesh = tuple[tuple[str, int], ...]
"""Names and degrees, the slowest axis first."""
Ranks = npt.NDArray[np.int64]
_AXIS = re.compile(r"([a-z_]+)\s*=\s*([0-9]{1,9})")


class Place(NamedTuple):
    """Coordinates of a rank in the grid."""

    dp: int
    pp: int
    tp: int

    def __str__(self) -> str:
        return f"dp{self.dp} pp{self.pp} tp{self.tp}"


@dataclass(frozen=True, kw_only=True)
class Topology:
    """A mesh of ranks. Without ``mesh`` it is plain: ``dp`` slowest, then ``pp``, then ``tp``.

    Raises:
        UsageError: a degree is below one, an axis has no known name or occurs twice, or there are more than
            ``MAX_RANKS`` ranks.
    """

    dp: int = 1
    """Degrees of the three directions. With a ``mesh`` they follow from it."""
    pp: int = 1
    tp: int = 1
    mesh: Mesh = ()

    def __post_init__(self) -> None:
        mesh = tuple((str(name), int(degree)) for name, degree in self.mesh) or self._plain
        for name, degree in mesh:
            if degree < 1:
                raise UsageError(f"{name} is {degree}", hint=f"use a degree of at least 1: {name}=1")
        _check_names([name for name, _ in mesh])
        degrees = dict(mesh)
        pp, tp = degrees.get("pp", 1), degrees.get("tp", 1)
        size = prod(degrees.values())
        if size > MAX_RANKS:
            raise UsageError(f"the mesh has {size} ranks", hint=f"at most {MAX_RANKS} are supported")
        for name, value in (("mesh", mesh), ("pp", pp), ("tp", tp), ("dp", size // (pp * tp))):
            object.__setattr__(self, name, value)

    @property
    def _plain(self) -> Mesh:
        return (("dp", self.dp), ("pp", self.pp), ("tp", self.tp))

    @classmethod
    def parse(cls, text: str) -> "Topology":
        """A topology from ``"pp=2,dp_shard=4,tp=8"``, the slowest axis first.

        Raises:
            UsageError: the text is not of that form, or as in :class:`Topology`.
        """
        parts = [_AXIS.fullmatch(part.strip()) for part in text.split(",")]
        if not text.strip() or None in parts:
            raise UsageError(
                f"{text[:200]!r} is not a mesh",
                hint="give the axes in rank order, the slowest first: pp=2,dp_shard=4,tp=8",
            )
        return cls(mesh=tuple((part[1], int(part[2])) for part in parts if part is not None))

    def __str__(self) -> str:
        """The inverse of :meth:`parse`."""
        return ",".join(f"{name}={degree}" for name, degree in self.mesh)

    @property
    def is_plain(self) -> bool:
        """Whether ``dp``, ``pp`` and ``tp`` in this order describe the whole mesh."""
        return self.mesh == self._plain

    @property
    def world_size(self) -> int:
        return self.dp * self.pp * self.tp

    # --- coordinates ------------------------------------------------------------------------------------------

    def place(self, rank: int) -> Place:
        """Coordinates of ``rank`` in the grid."""
        assert 0 <= rank < self.world_size, (rank, self)
        return Place(*(int(self.index[axis][rank]) for axis in AXES))

    def rank(self, place: Place) -> int:
        """The rank at ``place``: the inverse of :meth:`place`."""
        return int(self.grid[place])

    def describe(self, rank: int) -> str:
        """Coordinates of ``rank`` along the axes of its mesh: ``pp0 dp_shard1 tp0``."""
        return " ".join(f"{name}{index}" for name, index in self.coordinates(rank).items())

    def coordinates(self, rank: int) -> dict[str, int]:
        """Index of ``rank`` along each axis of its mesh, the slowest first."""
        indices: list[int] = []
        for degree in reversed(self._shape):
            rank, index = divmod(int(rank), degree)
            indices.append(index)
        return {name: index for (name, _), index in zip(self.mesh, reversed(indices), strict=True)}

    @cached_property
    def grid(self) -> Ranks:
        """The rank at each place, [dp, pp, tp]."""
        names = [name for name, _ in self.mesh]
        order = [at for at, name in enumerate(names) if name not in ("pp", "tp")]
        order += [names.index(name) for name in ("pp", "tp") if name in names]
        ranks = np.arange(self.world_size).reshape(self._shape).transpose(order)
        return _frozen(ranks.reshape(self.dp, self.pp, self.tp))

    @cached_property
    def index(self) -> dict[Axis, Ranks]:
        """Index of each rank along each direction of the grid, [ranks]."""
        found: dict[Axis, Ranks] = {}
        for direction, axis in enumerate(AXES):
            along = np.empty(self.world_size, dtype=np.int64)
            along[self.grid.ravel()] = np.indices(self.grid.shape)[direction].ravel()
            found[axis] = _frozen(along)
        return found

    def along(self, name: str) -> Ranks | None:
        """Index of each rank along an axis of the mesh, or along a direction of the grid, [ranks]. Otherwise None."""
        if name in dict(self.mesh):
            return np.arange(self.world_size) // self.stride(name) % dict(self.mesh)[name]
        return next((index for direction, index in self.index.items() if direction == name), None)

    def arranged(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """``values`` of shape [..., ranks] as [..., dp, pp, tp]: a view where the mesh is plain, otherwise a copy."""
        shape = (*values.shape[:-1], self.dp, self.pp, self.tp)
        return values.reshape(shape) if self.is_plain else values[..., self.grid.ravel()].reshape(shape)

    def by_rank(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """``values`` of shape [..., dp, pp, tp] as [..., ranks]: the inverse of :meth:`arranged`."""
        flat = values.reshape(*values.shape[:-3], self.world_size)
        if self.is_plain:
            return flat
        answer = np.empty_like(flat)
        answer[..., self.grid.ravel()] = flat
        return answer

    def stride(self, name: str) -> int:
        """Ranks from one index of an axis to the next. 1 if the mesh lacks it."""
        names = [axis for axis, _ in self.mesh]
        return prod(self._shape[names.index(name) + 1 :]) if name in names else 1

    def neighbour(self, towards: int) -> Ranks:
        """The rank at the same place of a neighbouring pipeline stage, [ranks]: the next stage if ``towards`` is 1, the
        previous stage if it is -1. -1 if there is no such stage."""
        found = np.full(self.world_size, -1, dtype=np.int64)
        near, far = (slice(None, -1), slice(1, None)) if towards > 0 else (slice(1, None), slice(None, -1))
        found[self.grid[:, near]] = self.grid[:, far]
        return found

    def replica(self, index: int) -> str:
        """Name of a place along the grid's ``dp`` direction: ``dp1``, or ``dp_shard1 cp0``.

        A mesh without such axes has one place, ``dp0``.
        """
        coordinates = self.coordinates(int(self.grid[index, 0, 0]))
        return " ".join(f"{name}{at}" for name, at in coordinates.items() if name not in ("pp", "tp")) or f"dp{index}"

    @property
    def replica_axes(self) -> str:
        """Names of the axes that the grid's ``dp`` direction counts: ``dp``, or ``dp_shard x cp``."""
        return " x ".join(name for name, _ in self.mesh if name not in ("pp", "tp")) or "dp"

    # --- groups ---------------------------------------------------------------------------------------------------

    def mask(self, *names: str) -> int:
        """The bit mask of some axes. Names that the mesh lacks add nothing."""
        return sum(1 << at for at, (name, _) in enumerate(self.mesh) if name in names)

    @property
    def replica_mask(self) -> int:
        """The bit mask of the axes that the grid's ``dp`` direction counts: all but pp and tp.

        Axes of degree 1 are left out."""
        return self.wide_mask(*(name for name, _ in self.mesh if name not in ("pp", "tp")))

    def wide_mask(self, *names: str) -> int:
        """:meth:`mask` without axes of degree 1, as :meth:`mask_of` has it."""
        return self.mask(*(name for name, degree in self.mesh if degree > 1 and name in names))

    @property
    def whole_mask(self) -> int:
        """The bit mask of all axes."""
        return (1 << len(self.mesh)) - 1

    def known_mask(self, mask: int) -> int:
        """``mask``, or 0 if it has axes that the mesh lacks."""
        return mask if 0 < mask <= self.whole_mask else 0

    def axes_of(self, mask: int) -> tuple[str, ...]:
        """Names of the axes in a bit mask, the slowest first."""
        return tuple(name for at, (name, _) in enumerate(self.mesh) if mask >> at & 1)

    def members(self, mask: int) -> Ranks:
        """Ranks of every group along the axes in ``mask``, [groups, members].

        Groups are in the order of their first rank, members in the order of their ranks.
        """
        return self.grouped(np.arange(self.world_size), mask)

    def grouped(self, values: npt.NDArray[Any], mask: int) -> npt.NDArray[Any]:
        """``values`` of shape [..., ranks] as [..., groups, members], in the order of :meth:`members`: a view where
        memory allows it."""
        wanted = [at for at in range(len(self.mesh)) if mask >> at & 1]
        others = [at for at in range(len(self.mesh)) if not mask >> at & 1]
        lead = values.shape[:-1]
        order = (*range(len(lead)), *(len(lead) + at for at in (*others, *wanted)))
        num_members = prod(self._shape[at] for at in wanted)
        shape = (*lead, self.world_size // num_members, num_members)
        return values.reshape(*lead, *self._shape).transpose(order).reshape(shape)

    def mask_of(self, ranks: Sequence[int]) -> int:
        """The bit mask of the axes along which a group of global ranks lies. 0 if there are none, or for one rank. Axes
        of degree 1 are left out."""
        size = len(set(ranks))
        if size < 2 or not 0 <= min(ranks) <= max(ranks) < self.world_size:
            return 0
        first = np.array(np.unravel_index(min(ranks), self._shape))
        moved = (np.array(np.unravel_index(np.array(ranks), self._shape)) != first[:, None]).any(axis=1)
        mask = sum(1 << int(at) for at in np.flatnonzero(moved))
        return mask if prod(self._shape[at] for at in np.flatnonzero(moved)) == size else 0

    def group_of(self, rank: int, mask: int) -> tuple[int, ...]:
        """The group along the axes in ``mask`` that ``rank`` belongs to, in order."""
        coordinates = self.coordinates(rank).values()
        place = tuple(slice(None) if mask >> at & 1 else index for at, index in enumerate(coordinates))
        ranks = np.arange(self.world_size).reshape(self._shape)
        return tuple(np.atleast_1d(ranks[place]).ravel().tolist())

    def group(self, rank: int, *, along: Axis) -> tuple[int, ...]:
        """Ranks that have all coordinates of ``rank`` in the grid except the one ``along`` a direction, in order."""
        place = {**self.place(rank)._asdict(), along: slice(None)}
        return tuple(self.grid[place["dp"], place["pp"], place["tp"]].tolist())

    def groups(self, *, along: Axis) -> Iterator[tuple[int, ...]]:
        """Every group along a direction of the grid, in the order of their first ranks."""
        groups = np.moveaxis(self.grid, AXES.index(along), -1).reshape(-1, getattr(self, along))
        return map(tuple, sorted(groups.tolist()))

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(degree for _, degree in self.mesh)


def _check_names(names: list[str]) -> None:
    for name in names:
        if name not in MESH_AXES:
            raise UsageError(f"{name[:80]!r} is not an axis of a mesh", hint=f"known axes: {', '.join(MESH_AXES)}")
        if names.count(name) > 1:
            raise UsageError(f"the axis {name} occurs twice", hint="give each axis once, in rank order")


def _frozen(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    values = np.ascontiguousarray(values)
    values.flags.writeable = False
    return values
