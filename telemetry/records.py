"""The identity of a rank, as its rank file and every batch contain it."""

from dataclasses import dataclass, field

from telemetry.topology import Place, Topology

LOG_OFFSETS = "log_offsets"
"""In ``meta``: sizes of the files behind stdout and stderr as recording began."""

MAX_AHEAD_NS = 86_400 * 10**9
"""How far the clock of a host may be ahead of the collector's."""

RECORDS_LOST = "records-lost"
"""Name of the mark that the agent stores where records are missing; its text begins with their number."""

SPANS_DROPPED = "spans-dropped"
"""Name of the mark that a rank records for spans that it could not keep; its text begins with their number since the
last such mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankIdentity:
    """Who writes: one rank in one attempt of one run. ``meta.json`` beside the rank file holds it."""

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
    """When the rank's folder was first opened, likewise: a restart in place keeps it. 0: not known."""
    uid: int = -1
    """User id of the folder's owner. Read from the file system, never from the file. -1: not known."""
    meta: dict[str, str] = field(default_factory=dict)
    """Free text about the run: model, recipe, device, torch version."""

    @property
    def folder_opened_ns(self) -> int:
        """What names the rank's folder among those that were recorded under the same run, attempt and rank."""
        return self.opened_ns or self.started_ns

    @property
    def place(self) -> Place:
        return self.topology.place(self.rank)
