"""The topology of a job, from the meshes that its ranks stored.

All ranks of a job have one mesh, but they learn it at different times, and a rank may end before it has. The topology
of most ranks counts; if two are equally frequent, that of the lowest rank. ``RunGrids`` selects rows by the same rule.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from telemetry.errors import UsageError
from telemetry.topology import AXES, Topology

MAX_MESH_LENGTH = 256
"""Characters of a mesh as text; the longest possible one takes fewer."""


def topology_of(ranks: Any) -> Topology:
    """The topology that ranks say they form.

    ``ranks``: the answer to ``Ranks`` (a pyarrow table), at least one row.

    Raises:
        UsageError: degrees or a mesh that cannot be.
    """
    names = [*(f"{axis}_size" for axis in AXES), *(["mesh"] if "mesh" in ranks.column_names else [])]
    counted = ranks.group_by(names, use_threads=False).aggregate([([], "count_all")])
    votes: Counter[Topology] = Counter()
    for row in counted.to_pylist():
        votes[topology_in(row)] += row["count_all"]
    return agreed_topology(votes)


def agreed_topology(votes: Counter[Topology]) -> Topology:
    """The topology that counts. ``votes``: ranks that have each, entered in the order of ranks; not empty."""
    return votes.most_common(1)[0][0]


def topology_in(row: Mapping[str, Any]) -> Topology:
    """The topology in one row of ``ranks``. Without a mesh (rows of older versions) it is plain.

    Raises:
        UsageError: as in :func:`topology_from`.
    """
    return topology_from({axis: row[f"{axis}_size"] for axis in AXES}, str(row.get("mesh") or ""))


def topology_from(degrees: Mapping[str, Any], mesh: str) -> Topology:
    """The topology of these degrees of dp, pp and tp, and this mesh as text. Without a mesh (older versions) it is
    plain. A degree that is left out is 1.

    Raises:
        UsageError: degrees or a mesh that cannot be, or that contradict each other.
    """
    dp, pp, tp = (int(degrees.get(axis, 1)) for axis in AXES)
    plain = Topology(dp=dp, pp=pp, tp=tp)
    if not mesh:
        return plain
    topology = Topology.parse(mesh) if len(mesh) <= MAX_MESH_LENGTH else None
    if topology is None or (topology.dp, topology.pp, topology.tp) != (dp, pp, tp):
        raise UsageError(f"the mesh {mesh[:80]!r} does not match dp {dp}, pp {pp}, tp {tp}", hint="send both unchanged")
    return topology
