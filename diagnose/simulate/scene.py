"""The grid, hosts and steps of a simulated run, and its conditions: factors and delays that faults set.

    rank 3 slow from step 1 on        work[step, rank]     1.0 1.0 1.0 1.0
                                                           1.0 1.0 1.0 1.4
                                                           1.0 1.0 1.0 1.4

In a healthy run all factors are 1 and all delays are 0. Faults multiply factors and add delays. They can be combined.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from diagnose.model.operations import Int64s
from telemetry.errors import UsageError
from telemetry.stages import Stage
from telemetry.topology import Topology

Floats = npt.NDArray[np.float64]
"""Seconds or factors. The axes are documented at each use."""


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
    roles: tuple[str, ...] = ()
    """Role of each rank. Empty: the job has one program."""
    experts: bool = False

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
        """The ranks that ``rank=`` or ``host=`` of a fault selects. All ranks if the fault has neither."""
        if rank >= 0:
            return [rank]
        return self.ranks_on(host) if host else list(range(self.topology.world_size))

    def check_place(self, rank: int, host: str) -> None:
        """Refuse a rank or a host that is not there.

        Raises:
            UsageError: the fault has both, or the rank or the host does not exist.
        """
        if rank >= 0 and host:
            raise UsageError("a fault has rank= and host=", hint="use one of the two")
        if not -1 <= rank < self.topology.world_size:
            raise UsageError(
                f"a fault is on rank {rank}", hint=f"ranks of this grid are 0 to {self.topology.world_size - 1}"
            )
        if host and host not in self.hosts:
            raise UsageError(f"a fault is on host {host!r}", hint=f"hosts are {self.hosts[0]} to {self.hosts[-1]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A temporary link loss of a network card."""

    row: int
    """Row of the step."""
    ranks: tuple[int, ...]
    """Ranks that use this card."""
    host: str
    device: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Arrays of [steps, ranks], unless stated otherwise. Faults change them in place."""

    scene: Scene
    work: Floats
    """Factor on the compute of a rank: processor or GPU time."""
    wall: Floats
    """Additional factor on the wall time of compute, because other processes use the core."""
    sequences: Floats
    """Factor on the compute of a microbatch in a replica: [steps, dp, microbatches]."""
    dp_link: Floats
    """Factor on data-parallel collectives. The factor of the slowest member is used."""
    pp_link: Floats
    """Factor on transfers between pipeline stages. The factor of the slower side is used."""
    silence_s: Floats
    """Seconds without a network in that step."""
    data_s: Floats
    """Delay of the data in seconds."""
    launch_s: Floats
    """Delay in seconds with which a rank launches the collective of its gradients."""
    collection_s: Floats
    """Seconds of garbage collection inside one forward of the step."""
    collection_in: Floats
    """Number of that forward in the step."""
    write: Floats
    """Factor on the writing of a checkpoint."""
    loss: Floats
    """Added to the loss, [steps]."""
    gradient_norm: Floats
    """Factor on the norm of the gradient, [steps]."""
    tokens: Floats
    """Factor on the tokens that the experts of a rank receive."""
    tail: Floats
    """Factor on the length of the longest rollouts of a step, [steps]."""
    silences: list[Silence] = field(default_factory=list)
    """The link losses in ``silence_s``, for each card."""
    held_down: dict[str, Floats] = field(default_factory=dict)
    """Throttling counter of a GPU -> the part of ``work`` that it causes."""

    durations: dict[Stage, Floats] = field(default_factory=dict)
    """Stage -> factor on its time on all ranks, [steps]."""

    def stage_factors(self, stage: Stage) -> Floats:
        """The factors of one stage. Faults change them in place."""
        return self.durations.setdefault(stage, np.ones(self.scene.num_steps))

    def held_down_by(self, counter: str) -> Floats:
        """The factor of one counter. Faults change it in place."""
        return self.held_down.setdefault(counter, np.ones_like(self.work))


def healthy(scene: Scene) -> Conditions:
    """Conditions without any fault."""
    ranks = (scene.num_steps, scene.topology.world_size)
    return Conditions(
        scene=scene,
        work=np.ones(ranks),
        wall=np.ones(ranks),
        sequences=np.ones((scene.num_steps, scene.topology.dp, scene.num_microbatches)),
        dp_link=np.ones(ranks),
        pp_link=np.ones(ranks),
        silence_s=np.zeros(ranks),
        data_s=np.zeros(ranks),
        launch_s=np.zeros(ranks),
        collection_s=np.zeros(ranks),
        collection_in=np.zeros(ranks),
        write=np.ones(ranks),
        loss=np.zeros(scene.num_steps),
        gradient_norm=np.ones(scene.num_steps),
        tokens=np.ones(ranks),
        tail=np.ones(scene.num_steps),
    )
