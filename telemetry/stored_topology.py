"""From stored rows of ``ranks`` to the topology that they form: the only place that does so."""

from collections.abc import Mapping
from typing import Any

from telemetry.errors import UsageError
from telemetry.topology import AXES, Topology

MAX_MESH_LENGTH = 256
"""Characters of a mesh as text; the longest possible one takes fewer."""


def topology_of(ranks: Any) -> Topology:
    """The topology that ranks say they form.

    ``ranks``: the answer to ``Ranks`` (a pyarrow table), at least one row. Its first row counts: the newest
    announcement of the lowest rank.

    Raises:
        UsageError: degrees or a mesh that cannot be.
    """
    names = [*(f"{axis}_size" for axis in AXES), *(["mesh"] if "mesh" in ranks.column_names else [])]
    return topology_in({name: ranks[name][0].as_py() for name in names})


def topology_in(row: Mapping[str, Any]) -> Topology:
    """The topology in one row of ``ranks``. Without a mesh (rows of older versions) it is plain.

    Raises:
        UsageError: degrees or a mesh that cannot be, or that contradict each other.
    """
    dp, pp, tp = (int(row[f"{axis}_size"]) for axis in AXES)
    plain = Topology(dp=dp, pp=pp, tp=tp)
    mesh = str(row.get("mesh") or "")
    if not mesh:
        return plain
    topology = Topology.parse(mesh) if len(mesh) <= MAX_MESH_LENGTH else None
    if topology is None or (topology.dp, topology.pp, topology.tp) != (dp, pp, tp):
        raise UsageError(f"the mesh {mesh[:80]!r} is not of dp {dp}, pp {pp}, tp {tp}", hint="send both as they are")
    return topology
