"""A run as detectors see it: columns of one attempt over a window of steps, and nothing else.

    work[stage][step, rank]          nanoseconds of a rank's own work in a stage, waiting left out
    operations[stage].duration_ns    [step, occurrence, rank]: each operation by itself (see operations.py)
    step_ns[step]                    its step time (step_time.py)

*Own work* is the processor time of the recording thread where it was measured (ranks on CPUs: blind to waiting and
to neighbours that take the core), else the span's duration less the tensor-parallel collectives inside it (ranks on
GPUs), because a span that contains a collective is as long on the victim as on the culprit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from diagnose.findings import StepWindow
from diagnose.model.fleet import NO_FLEET, Fleet
from diagnose.model.operations import Operations
from diagnose.model.outages import Effect
from diagnose.settings import USUAL, DetectorSettings
from telemetry.clocks.align_evidence import ClockTable
from telemetry.stages import Stage
from telemetry.topology import Topology

FloatVector = npt.NDArray[np.float64]
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
    each_ns: npt.NDArray[np.float64] | None = None
    """Of each operation, [steps, occurrences, ranks], likewise; None where only sums are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A number over steps: ``steps`` ascending, ``values`` beside them; a step without a value is left out."""

    steps: IntVector
    values: FloatVector


NO_CLOCKS = ClockTable()
NOTHING = Series(steps=np.zeros(0, dtype=np.int64), values=np.zeros(0))


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
    off_cpu: Mapping[Stage, FloatMatrix] = field(default_factory=dict)
    """Compute stages: own wall time less processor time, nanoseconds [steps, ranks]; none where it was not measured."""
    overlap: Mapping[Stage, FloatMatrix] = field(default_factory=dict)
    """Of ``off_cpu``, and of processor time, what collectives of parameters and gradients cover, likewise: a rank may
    have waited for its peers then."""
    operations: Mapping[Stage, Operations] = field(default_factory=dict)
    """Every stage that occurs in the window but ``step`` and the tensor-parallel collectives."""
    samples: Mapping[str, Series] = field(default_factory=dict)
    """Metric -> its values over the steps of ``history``: loss, gradient-norm, tokens-per-second, mfu."""
    history: Series = NOTHING
    """Wall time of the finished steps up to the window's end, 100,000 at most, nanoseconds."""
    step_start_ns: IntVector | None = None
    """Wall clock at which the first rank began each step; None where it is not known."""
    fleet: Fleet = NO_FLEET
    """What the hosts said meanwhile."""
    effects: tuple[Effect, ...] = ()
    """Losses of link and what each did to the steps: see ``outage_effect.with_effects``."""
    settings: DetectorSettings = USUAL
    clocks: ClockTable = NO_CLOCKS
    """How hosts' clocks lie apart, as far as it is known; stamps in this view are raw."""
    on_device: bool = False
    """Whether a device measured computes and communication. Stamps of what the host did (data-load, gc, checkpoints)
    are not compared with those: the host runs ahead."""
    words: tuple[Mapping[str, str], ...] = ()
    """Of each rank what it said about itself as it began (``RankIdentity.meta``); empty where nothing is known."""

    @property
    def window(self) -> StepWindow:
        if not len(self.steps):
            return StepWindow(first_step=0, last_step=0)
        return StepWindow(first_step=int(self.steps[0]), last_step=int(self.steps[-1]))

    @property
    def pp_of_rank(self) -> IntVector:
        """Pipeline stage of each rank."""
        return self.topology.index["pp"]

    def describe(self, rank: int) -> str:
        """``rank 5 (host gpu-03, dp1 pp0 tp1)``."""
        return f"rank {rank} (host {self.hosts[rank] or 'unknown'}, {self.topology.describe(rank)})"

    def newest(self, num_steps: int) -> "RunView":
        """The same over the last so many steps."""
        work = {
            stage: replace(
                one, ns=one.ns[-num_steps:], each_ns=None if one.each_ns is None else one.each_ns[-num_steps:]
            )
            for stage, one in self.work.items()
        }
        return replace(
            self,
            steps=self.steps[-num_steps:],
            step_ns=self.step_ns[-num_steps:],
            step_start_ns=None if self.step_start_ns is None else self.step_start_ns[-num_steps:],
            work=work,
            off_cpu={stage: ns[-num_steps:] for stage, ns in self.off_cpu.items()},
            overlap={stage: ns[-num_steps:] for stage, ns in self.overlap.items()},
            operations={stage: one.newest(num_steps) for stage, one in self.operations.items()},
        )

    def alone_off_cpu(self, stage: Stage) -> FloatMatrix:
        """How long ranks were off their cores in a stage of ``off_cpu`` at least, and waited for nobody."""
        return np.maximum(self.off_cpu[stage] - self.overlap.get(stage, 0.0), 0.0)

    def between(self, first_row: int, last_row: int) -> StepWindow:
        """The window from one row to another, both included."""
        return StepWindow(first_step=int(self.steps[first_row]), last_step=int(self.steps[last_row]))
