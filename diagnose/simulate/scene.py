"""Where a simulated run takes place: its grid, its hosts and its steps, as a fault sees them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import Int64s
from telemetry.errors import UsageError
from telemetry.topology import Topology

Floats = npt.NDArray[np.float64]
"""Seconds or factors; what its axes are stands beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Grid, hosts and steps of a run."""

    topology: Topology
    hosts: tuple[str, ...]
    """Host of each rank."""
    first_step: int
    num_steps: int
    num_microbatches: int
    num_chunks: int
    on_cpu: bool
    checkpoint_every: int
    collects_by_plan: bool

    @property
    def steps(self) -> Int64s:
        """Numbers of the steps."""
        return np.arange(self.first_step, self.first_step + self.num_steps)

    def rows(self, first_step: int, last_step: int) -> slice:
        """Rows of the steps from one to another, both included."""
        return slice(max(0, first_step - self.first_step), max(0, last_step + 1 - self.first_step))

    def ranks_on(self, host: str) -> list[int]:
        return [rank for rank, name in enumerate(self.hosts) if name == host]

    def on_pp(self, pp: int) -> list[int]:
        """Ranks of one pipeline stage."""
        return np.flatnonzero(self.topology.index["pp"] == pp).tolist()

    def leaves_host(self, rank: int, towards: int) -> bool:
        """Whether what ``rank`` exchanges with the pipeline rank before it (-1) or behind it (1) leaves its host."""
        place, last = self.topology.place(rank), self.topology.pp - 1
        if self.num_chunks == 1 and not 0 <= place.pp + towards <= last:
            return False
        peer = self.topology.rank(place._replace(pp=(place.pp + towards) % (last + 1)))
        return self.hosts[rank] != self.hosts[peer]

    def ranks_at(self, rank: int, host: str) -> list[int]:
        """The ranks that ``rank=`` or ``host=`` of a fault means; all where it says neither."""
        if rank >= 0:
            return [rank]
        return self.ranks_on(host) if host else list(range(self.topology.world_size))

    def check_place(self, rank: int, host: str) -> None:
        """Refuse a rank or a host that is not there.

        Raises:
            UsageError: with what is there.
        """
        if rank >= 0 and host:
            raise UsageError("a fault with rank= and host=", hint="name one of the two")
        if not -1 <= rank < self.topology.world_size:
            raise UsageError(
                f"a fault on rank {rank}", hint=f"ranks of this grid are 0 to {self.topology.world_size - 1}"
            )
        if host and host not in self.hosts:
            raise UsageError(f"a fault on host {host!r}", hint=f"hosts are {self.hosts[0]} to {self.hosts[-1]}")
