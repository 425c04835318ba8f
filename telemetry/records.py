"""The identity of a rank, and the topology of a job, as rank files, batches and the store contain them.

All ranks of a job have one mesh, but they learn it at different times, and a rank may end before it has learned it. The
topology that most ranks have is used. If two are equally frequent, the one of the lowest rank is used. ``RunGrids``
selects rows by the same rule.
"""

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from telemetry.errors import UsageError
from telemetry.run_names import as_role
from telemetry.topology import AXES, Place, Topology

ROLE = "role"
"""Key in ``meta``: what the rank does in a job with several programs (actor, rollout, reward ...)."""
LOG_OFFSETS = "log_offsets"
"""Key in ``meta``: sizes of the files behind stdout and stderr when recording began."""

MAX_AHEAD_NS = 86_400 * 10**9
"""Largest time by which the clock of a host may be ahead of the collector's clock."""

RECORDS_LOST = "records-lost"
"""Name of the mark that the agent stores if records are missing. Its text begins with their number."""

RANK_FAILED = "rank-failed"
"""Name of the mark that a rank of the trainer records when an error ends it; its text is the error."""

SPANS_DROPPED = "spans-dropped"
"""Name of the mark that a rank records for spans that it could not keep; its text begins with their number since the
last such mark."""

GPU_UUID = "gpu_uuid"
"""Key in the identity's ``meta``: the UUID of the rank's GPU, as torch writes it (without ``GPU-``)."""
MAX_MESH_LENGTH = 256
"""Characters of a mesh as text; the longest possible one takes fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankIdentity:
    """One rank in one attempt of one run. It is stored in ``meta.json`` beside the rank file."""

    run_id: str
    attempt: int
    rank: int
    host: str
    local_rank: int
    pid: int
    topology: Topology
    started_ns: int
    """Wall clock, nanoseconds since the epoch."""
    opened_ns: int = 0
    """When the rank's folder was first opened, on the same clock. A restart in place keeps it. 0 if not known."""
    uid: int = -1
    """User id of the folder's owner. Read from the file system, never from the file. -1 if not known."""
    meta: dict[str, str] = field(default_factory=dict)
    """Free text about the run: model, recipe, device, torch version."""

    @property
    def folder_opened_ns(self) -> int:
        """Identifies the rank's folder among those of the same run, attempt and rank."""
        return self.opened_ns or self.started_ns

    @property
    def place(self) -> Place:
        return self.topology.place(self.rank)


def parse_meta(meta: str) -> Mapping[str, str]:
    """The facts that a rank reported at its start: ``meta`` of the table ``ranks``. Empty if it is no JSON object."""
    with suppress(ValueError, RecursionError):
        values = json.loads(meta)
        return {str(key): str(value) for key, value in values.items()} if isinstance(values, dict) else {}
    return {}


def role_in(meta: Mapping[str, str]) -> str:
    """The role in the ``meta`` of a rank; empty if the rank reported none."""
    return as_role(meta.get(ROLE, ""))


def identity_from(fields: dict[str, Any], *, uid: int) -> RankIdentity:
    """The identity in the JSON of ``meta.json``: every value has its type and fits the ``ranks`` table.

    Raises:
        KeyError, TypeError, ValueError, UsageError: a value is missing or invalid.
    """
    opened = {"opened_ns": fields["started_ns"]}  # older versions did not write it
    identity = RankIdentity(**{**opened, **fields, "topology": _topology_from(fields["topology"]), "uid": uid})
    for name in ("attempt", "rank", "local_rank", "pid"):
        _check_number(name, getattr(identity, name), below=2**32)
    for name in ("started_ns", "opened_ns"):
        _check_number(name, getattr(identity, name), below=2**63)
    texts = {"run_id": identity.run_id, "host": identity.host, **identity.meta}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise TypeError(f"{name} is {text!r}, not text")
    f"{identity.run_id} {identity.host}".encode()  # JSON may contain half of a surrogate pair, which no table accepts
    if identity.rank >= identity.topology.world_size:
        raise ValueError(f"rank {identity.rank} is not in {identity.topology}")
    return identity


def _topology_from(fields: dict[str, Any]) -> Topology:
    mesh = fields.get("mesh", "")
    if not isinstance(mesh, str):
        raise TypeError(f"mesh is {mesh!r}, not text")
    for axis in AXES:
        _check_number(axis, fields.get(axis, 1), below=2**32)
    return topology_from(fields, mesh)


def _check_number(name: str, value: object, *, below: int) -> None:
    if type(value) is not int or not 0 <= value < below:  # a bool is an int
        raise ValueError(f"{name} is {value!r}, not a number from 0 to {below - 1}")


def topology_of(ranks: Any) -> Topology:
    """The topology of a job, by its ranks.

    ``ranks``: the answer to ``Ranks`` (a pyarrow table), at least one row.

    Raises:
        UsageError: the degrees or the mesh are invalid.
    """
    names = [*(f"{axis}_size" for axis in AXES), *(["mesh"] if "mesh" in ranks.column_names else [])]
    counted = ranks.group_by(names, use_threads=False).aggregate([([], "count_all")])
    votes: Counter[Topology] = Counter()
    for row in counted.to_pylist():
        votes[topology_in(row)] += row["count_all"]
    return agreed_topology(votes)


def agreed_topology(votes: Counter[Topology]) -> Topology:
    """The topology that most ranks have. ``votes``: topology -> number of ranks, entered in rank order; not empty."""
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
        UsageError: the degrees or the mesh are invalid, or contradict each other.
    """
    dp, pp, tp = (int(degrees.get(axis, 1)) for axis in AXES)
    plain = Topology(dp=dp, pp=pp, tp=tp)
    if not mesh:
        return plain
    topology = Topology.parse(mesh) if len(mesh) <= MAX_MESH_LENGTH else None
    if topology is None or (topology.dp, topology.pp, topology.tp) != (dp, pp, tp):
        raise UsageError(f"the mesh {mesh[:80]!r} does not match dp {dp}, pp {pp}, tp {tp}", hint="send both unchanged")
    return topology
