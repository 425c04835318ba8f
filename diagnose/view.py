"""A run as detectors see it: columns of one attempt over a window of steps, and nothing else.

    work[stage][step, rank]    nanoseconds of a rank's own work in a stage, waiting left out
    step_ns[step]              wall time of the step

*Own work* is the processor time of the recording thread where it was measured (ranks on CPUs: blind to waiting and
to neighbours that take the core), else the span's duration less the tensor-parallel collectives inside it (ranks on
GPUs), because a span that contains a collective is as long on the victim as on the culprit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from diagnose.findings import StepWindow
from telemetry.stages import Stage
from telemetry.topology import Topology

FloatMatrix = npt.NDArray[np.float64]
IntVector = npt.NDArray[np.int64]


class Basis(StrEnum):
    """What a duration of own work rests on."""

    PROCESSOR_TIME = "processor time"
    SELF_TIME = "time without collectives"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Own work in one stage: ``ns`` of shape [steps, ranks], NaN where a rank has no span."""

    ns: FloatMatrix
    basis: Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One attempt over a window of steps. Rows are steps, columns are ranks."""

    run_id: str
    attempt: int
    topology: Topology
    hosts: tuple[str, ...]
    """Host of each rank; empty text where a rank never reported."""
    steps: IntVector
    """Numbers of the steps, ascending."""
    step_ns: npt.NDArray[np.float64]
    work: Mapping[Stage, Work] = field(default_factory=dict)

    @property
    def window(self) -> StepWindow:
        if not len(self.steps):
            return StepWindow(first_step=0, last_step=0)
        return StepWindow(first_step=int(self.steps[0]), last_step=int(self.steps[-1]))

    @property
    def pp_of_rank(self) -> IntVector:
        """Pipeline stage of each rank."""
        return np.array([self.topology.place(rank).pp for rank in range(self.topology.world_size)], dtype=np.int64)

    def describe(self, rank: int) -> str:
        """``rank 5 (host gpu-03, dp1 pp0 tp1)``."""
        return f"rank {rank} (host {self.hosts[rank] or 'unknown'}, {self.topology.place(rank)})"

    def between(self, first_row: int, last_row: int) -> StepWindow:
        """The window from one row to another, both included."""
        return StepWindow(first_step=int(self.steps[first_row]), last_step=int(self.steps[last_row]))
