"""Learns the mesh of a job from the process groups of one rank.

The ranks of an axis have one stride. Axes whose degrees and strides fit together cover all ranks:

    mesh_tp [4, 5]   mesh_pp [0, 4]   mesh_fsdp [4, 6]      tp 2 x 1, dp_shard 2 x 2, pp 2 x 4    8 ranks: known
    mesh_tp [4, 5]   mesh_pp [0, 4]                         tp 2 x 1, ........ ? , pp 2 x 4       not yet

The mesh stays unknown until the named groups cover all ranks. Groups of experts divide the same ranks differently. They
become an axis only if all other axes stay whole. torch's DeviceMesh makes no group along an axis that contains all
ranks; then groups of experts alone may cover them.

A mesh that the user gives, as an argument of ``start`` or in RANKSCOPE_MESH, is checked here too.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from telemetry.errors import UsageError
from telemetry.group_names import axes_described, lies_beside_experts, spans_whole_axes
from telemetry.printable import log
from telemetry.settings import RecordingSettings
from telemetry.topology import AXES, MESH_AXES, Topology

MAX_GROUPS = 256
"""Largest number of different groups that are remembered."""
MAX_LAYOUTS = 4
"""Largest number of different groups of one axis that are tried."""
_SHARDED = ("dp", "dp_shard")
"""Axes of data parallelism. A group that is described by them may contain the ranks of cp and ep, too."""
_WITHIN = ("cp", "ep")
_BESIDE = ("dp_replicate",)
"""A group that is described by it and ``dp_shard`` contains the ranks of both."""
_PREFERRED = ("pp", "tp", "cp", "dp_replicate", "dp_shard", "dp", "ep")
"""Order of preference. Among layouts with equally many axes, the layout with the earlier names is used."""


class Stretch(NamedTuple):
    """Ranks ``first + i * stride``, for ``i`` below ``degree``."""

    degree: int
    stride: int


Layout = tuple[Stretch, ...]
"""A group as a sum of stretches, the smallest stride first."""
Group = tuple[tuple[str, ...], Layout]
"""The axes that describe it, and its ranks."""


class MeshLearner:
    """Learns the mesh from the groups of one rank. For one thread."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.topology: Topology | None = None
        self._known_groups: dict[Group, bool] = {}
        """Group -> whether it spans whole axes."""

    def add(self, description: str, ranks: Sequence[int]) -> Topology | None:
        """Add a group of this rank. Returns the mesh if this group made it known or finer; otherwise None."""
        is_whole = spans_whole_axes(description)
        axes = axes_described(description) if is_whole or lies_beside_experts(description) else ()
        layout = layout_of(ranks)
        if not axes or layout is None or max(ranks) >= self.world_size or len(self._known_groups) >= MAX_GROUPS:
            return None
        if (axes, layout) in self._known_groups and self._known_groups[axes, layout] >= is_whole:
            return None
        self._known_groups[axes, layout] = is_whole
        found = self._finest()
        if found is None or found == self.topology or _num_axes(found) < _num_axes(self.topology):
            return None
        self.topology = found
        return found

    def _finest(self) -> Topology | None:
        """The mesh with the most axes among those that cover the world; None if there is none."""
        found = self._finest_of([group for group, is_whole in self._known_groups.items() if is_whole])
        if found is not None:
            return found
        found = self._finest_of(list(self._known_groups))
        return found if found is not None and found.mask("ep") else None

    def _finest_of(self, groups: Sequence[Group]) -> Topology | None:
        layouts = _layouts(groups)
        names = [name for name in _PREFERRED if name in layouts]
        best: dict[str, Stretch] = {}
        for choice in product(*((*layouts[name], None) for name in names)):
            axes = {name: stretch for name, stretch in zip(names, choice, strict=True) if stretch is not None}
            if len(axes) > len(best) and fills(axes.values(), self.world_size):
                best = axes
        return mesh_of_strides(best, self.world_size) if best else None


def _layouts(groups: Sequence[Group]) -> dict[str, list[Stretch]]:
    """The possible stretches of each axis."""
    found: dict[str, list[Stretch]] = {}
    for axes, layout in groups:
        if len(axes) == 1 and len(layout) == 1:
            _note(found, axes[0], layout[0])
    for axes, layout in groups:
        names = [name for name in axes if name not in _BESIDE]
        if names and names[0] in _SHARDED and set(names[1:]) <= set(_WITHIN):
            beside = [name for name in axes if name in _BESIDE]
            for rest in _without(layout, found, (*beside, *_WITHIN)):
                _note(found, names[0], rest)
    return found


def topology_of_device_mesh(mesh: Any) -> Topology:
    """The topology of torch's ``DeviceMesh``: its ``mesh_dim_names``, and the ranks in its tensor ``mesh``.

    Raises:
        UsageError: a dimension has no name or an unknown name, or the order of the ranks has no strides.
    """
    names = mesh.mesh_dim_names
    ranks = np.asarray(mesh.mesh.tolist(), dtype=np.int64)
    if not names or ranks.ndim != len(names):
        raise UsageError("the DeviceMesh has no names", hint='give it mesh_dim_names=("pp", "dp_shard", "tp")')
    axes: dict[str, Stretch] = {}
    for dimension, name_given in enumerate(names):
        name = (axes_described(f"mesh_{name_given}") or (str(name_given),))[0]
        if name not in MESH_AXES or name in axes:
            raise UsageError(
                f"the mesh dimension {str(name_given)[:80]!r} is not a known axis", hint=f"axes: {', '.join(MESH_AXES)}"
            )
        along = np.moveaxis(ranks, dimension, 0).reshape(ranks.shape[dimension], -1)[:, 0]
        axes[name] = Stretch(len(along), int(along[1] - along[0]) if len(along) > 1 else 1)
    topology = mesh_of_strides(axes, ranks.size)
    laid_out = sum(index * axis.stride for index, axis in zip(np.indices(ranks.shape), axes.values(), strict=True))
    if topology is None or not np.array_equal(laid_out, ranks):
        raise UsageError(
            "the ranks of this DeviceMesh are not in a regular order",
            hint='set RANKSCOPE_MESH="pp=2,dp_shard=4,tp=8", the slowest axis first',
        )
    return topology


def layout_of(ranks: Sequence[int]) -> Layout | None:
    """The stretches of a group, for any order of ``ranks``. None if it has no stretches, or contains one rank only."""
    ordered = sorted(set(ranks))
    if len(ordered) < 2 or ordered[0] < 0:
        return None
    offsets = [rank - ordered[0] for rank in ordered]
    found: list[Stretch] = []
    while len(offsets) > 1:
        stride = offsets[1]
        degree = next((at for at, offset in enumerate(offsets) if offset != at * stride), len(offsets))
        rest = offsets[::degree]
        if len(offsets) % degree or offsets != [first + at * stride for first in rest for at in range(degree)]:
            return None
        found.append(Stretch(degree, stride))
        offsets = rest
    return tuple(found)


def _note(found: dict[str, list[Stretch]], name: str, stretch: Stretch) -> None:
    known = found.setdefault(name, [])
    if stretch not in known and len(known) < MAX_LAYOUTS:
        known.append(stretch)


def _without(layout: Layout, found: Mapping[str, Sequence[Stretch]], names: Sequence[str]) -> Iterator[Stretch]:
    """The rest of a group's ranks without some or all of these axes. Includes the group itself."""
    choices = [(*found.get(name, ()), None) for name in names]
    for taken in product(*choices):
        rest: Layout | None = layout
        for stretch in taken:
            rest = rest if stretch is None or rest is None else _minus(rest, stretch)
        if rest is not None and len(rest) == 1:
            yield rest[0]


def _minus(layout: Layout, stretch: Stretch) -> Layout | None:
    """``layout`` without a stretch of it. None if the stretch is not within it."""
    for at, whole in enumerate(layout):
        below, above = stretch.stride // whole.stride, whole.degree * whole.stride // (stretch.degree * stretch.stride)
        if below * whole.stride == stretch.stride and below * stretch.degree * above == whole.degree:
            parts = (Stretch(below, whole.stride), Stretch(above, stretch.degree * stretch.stride))
            return (*layout[:at], *(part for part in parts if part.degree > 1), *layout[at + 1 :])
    return None


def _plain(topology: Topology) -> Topology:
    """``topology`` as a plain grid, if its axes are dp, pp and tp in this order. Otherwise unchanged."""
    wide = [name for name, degree in topology.mesh if degree > 1]
    if wide == [axis for axis in AXES if axis in wide]:
        return Topology(dp=topology.dp, pp=topology.pp, tp=topology.tp)
    return topology


def _num_axes(topology: Topology | None) -> int:
    return 0 if topology is None else sum(degree > 1 for _, degree in topology.mesh)


def given_topology(topology: Topology | Any | None, settings: RecordingSettings) -> Topology | None:
    """The topology that the caller or RANKSCOPE_MESH gives; None if there is none. If it cannot be used, prints one
    line on stderr, and returns None."""
    try:
        if topology is None:
            given = Topology.parse(settings.mesh) if settings.mesh else None
        else:
            given = topology if isinstance(topology, Topology) else topology_of_device_mesh(topology)
    except (UsageError, AttributeError, TypeError, ValueError) as error:
        log(f"rankscope: {error}. The mesh is learned from the process groups")
        return None
    group = settings.replica_group
    if given is not None and group.count * given.world_size == settings.world_size:
        given = group.of_all(given)
    if given is not None and settings.world_size not in (1, given.world_size):
        source = "RANKSCOPE_MESH" if topology is None else "the given mesh"
        differs = f"{source} has {given.world_size} ranks, the job has {settings.world_size}"
        log(f"rankscope: {differs}. The mesh is learned from the process groups")
        return None
    return given


def mesh_of_strides(axes: Mapping[str, Stretch], world_size: int) -> Topology | None:
    """The mesh whose axes have these degrees and strides: ``{"tp": (2, 1), "pp": (2, 4), "dp_shard": (2, 2)}``.

    One rank knows them from its own groups: a group's ranks are ``first + i * stride``. None if the axes do not
    describe ``world_size`` ranks exactly. Axes of degree 1 come first.
    """
    if not fills(axes.values(), world_size):
        return None
    wide = sorted((axis.stride, axis.degree, name) for name, axis in axes.items() if axis.degree > 1)
    narrow = tuple((name, 1) for name, axis in axes.items() if axis.degree == 1)
    return _plain(Topology(mesh=narrow + tuple((name, degree) for _, degree, name in reversed(wide))))


def fills(axes: Iterable[Stretch], world_size: int) -> bool:
    """Whether axes of these degrees and strides describe ``world_size`` ranks exactly."""
    expected = 1
    for stride, degree in sorted((stride, degree) for degree, stride in axes if degree > 1):
        if stride != expected:
            return False
        expected *= degree
    return expected == world_size
