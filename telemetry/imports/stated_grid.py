"""The mesh of a job whose files state the coordinates of each rank, or whose user states the mesh."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from telemetry.errors import UnreadableError, UsageError
from telemetry.group_names import NO_PEER
from telemetry.imports.interface import DEGREES_HINT, ImportOptions
from telemetry.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """The coordinates that a file states for a rank, and the degrees. A degree that the file does not state is 0."""

    rank: int
    dp: int
    pp: int
    tp: int
    dp_degree: int = 0
    pp_degree: int = 0
    tp_degree: int = 0


def topology_of_places(places: Sequence[Places]) -> Topology:
    """The mesh in which each of ``places`` (at least one) lies as stated: dp, pp and tp, in one of the usual orders.

    A degree that no file states is one more than the largest coordinate.

    Raises:
        UnreadableError: no order of the axes matches.
    """
    degrees = (
        max(max(place.dp_degree, place.dp + 1) for place in places),
        max(max(place.pp_degree, place.pp + 1) for place in places),
        max(max(place.tp_degree, place.tp + 1) for place in places),
    )
    sizes = dict(zip(("dp", "pp", "tp"), degrees, strict=True))
    for order in (("dp", "pp", "tp"), ("pp", "dp", "tp"), ("dp", "tp", "pp"), ("tp", "dp", "pp")):
        topology = Topology(mesh=tuple((name, sizes[name]) for name in order))
        if all(_is_at(topology, place) for place in places):
            return topology
    stated = places[0]
    raise UnreadableError(
        f"the coordinates of the ranks match no order of axes: rank {stated.rank} is at dp{stated.dp} pp{stated.pp} "
        f"tp{stated.tp} of dp={degrees[0]}, pp={degrees[1]}, tp={degrees[2]}",
        hint=DEGREES_HINT,
    )


def _is_at(topology: Topology, place: Places) -> bool:
    if not 0 <= place.rank < topology.world_size:
        return False
    return tuple(topology.place(place.rank)) == (place.dp, place.pp, place.tp)


def topology_of_options(options: ImportOptions, world_size: int) -> Topology | None:
    """The mesh that the user gave; None if no option was used.

    Raises:
        UsageError: it does not have ``world_size`` ranks.
    """
    degrees = {name: degree for name in ("dp", "pp", "tp") if (degree := getattr(options, name)) is not None}
    if options.mesh is not None and degrees:
        raise UsageError("--mesh does not work with --dp, --pp or --tp", hint="use only --mesh")
    if options.mesh is None and not degrees:
        return None
    topology = options.mesh or _filled(degrees, world_size)
    if topology.world_size < world_size:
        raise UsageError(f"{topology} has fewer ranks than the files: {world_size}", hint=DEGREES_HINT)
    return topology


def _filled(degrees: Mapping[str, int], world_size: int) -> Topology:
    """The grid of these degrees. If the degree of dp is not given, it is set to fit ``world_size``."""
    pp, tp = degrees.get("pp", 1), degrees.get("tp", 1)
    return Topology(dp=degrees.get("dp", max(world_size // (pp * tp), 1)), pp=pp, tp=tp)


def neighbour(topology: Topology, rank: int, towards: int) -> int:
    """The rank of the next (1) or previous (-1) pipeline stage, around the pipeline; ``NO_PEER`` without a pipeline."""
    if topology.pp < 2:
        return NO_PEER
    place = topology.place(rank)
    return topology.rank(place._replace(pp=(place.pp + towards) % topology.pp))
