"""The mesh that the user gives: as an argument of ``start``, or in RANKSCOPE_MESH."""

from typing import Any

from telemetry.errors import UsageError
from telemetry.printable import log
from telemetry.record.mesh_learning import topology_of_device_mesh
from telemetry.settings import RecordingSettings
from telemetry.topology import Topology


def given_topology(topology: Topology | Any | None, settings: RecordingSettings) -> Topology | None:
    """As the caller gives it, else RANKSCOPE_MESH. An unusable mesh prints one line on stderr. Recording continues."""
    try:
        given = _as_topology(topology) if topology is not None else None
        if given is None and settings.mesh:
            given = Topology.parse(settings.mesh)
    except (UsageError, AttributeError, TypeError, ValueError) as error:
        log(f"rankscope: the mesh is learned from the process groups: {error}")
        return None
    if given is not None and settings.world_size not in (1, given.world_size):
        source = "RANKSCOPE_MESH" if topology is None else "the given mesh"
        differs = f"{source} has {given.world_size} ranks, the job has {settings.world_size}"
        log(f"rankscope: {differs}: the mesh is learned instead")
        return None
    return given


def _as_topology(topology: Topology | Any) -> Topology:
    return topology if isinstance(topology, Topology) else topology_of_device_mesh(topology)
