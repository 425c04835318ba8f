"""Reads the identity of a rank from the JSON in its folder, and checks that the values fit the ``ranks`` table."""

from typing import Any

from telemetry.records import RankIdentity
from telemetry.stored_topology import topology_from
from telemetry.topology import AXES, Topology


def identity_from(fields: dict[str, Any], *, uid: int) -> RankIdentity:
    """An identity whose every value has its type and fits the ``ranks`` table."""
    opened = {"opened_ns": fields["started_ns"]}  # what an older version wrote does not say
    identity = RankIdentity(**{**opened, **fields, "topology": _topology_from(fields["topology"]), "uid": uid})
    topology = identity.topology
    numbers = {name: getattr(identity, name) for name in ("attempt", "rank", "local_rank", "pid")}
    numbers |= {"dp": topology.dp, "pp": topology.pp, "tp": topology.tp}
    for name, value in numbers.items():
        _check_number(name, value, below=2**32)
    _check_number("started_ns", identity.started_ns, below=2**63)
    _check_number("opened_ns", identity.opened_ns, below=2**63)
    words = {"run_id": identity.run_id, "host": identity.host, **identity.meta}
    for name, word in words.items():
        if not isinstance(word, str):
            raise TypeError(f"{name} is {word!r}, not text")
    f"{identity.run_id} {identity.host}".encode()  # JSON may hold halves of letters, which no table takes
    if identity.rank >= topology.world_size:
        raise ValueError(f"rank {identity.rank} is not in {topology}")
    return identity


def _topology_from(fields: dict[str, Any]) -> Topology:
    mesh = fields.get("mesh", "")
    if not isinstance(mesh, str):
        raise TypeError(f"mesh is {mesh!r}, not text")
    for axis in AXES:
        _check_number(axis, fields.get(axis, 1), below=2**32)
    return topology_from(fields, mesh)


def _check_number(name: str, value: object, *, below: int) -> None:
    # What JSON calls true is a number in Python.
    if type(value) is not int or not 0 <= value < below:
        raise ValueError(f"{name} is {value!r}, not a number from 0 to {below - 1}")
