"""The input of detectors: columns of one attempt over a window of steps.

    work[stage].ns[step, rank]       compute time of a rank in a stage, nanoseconds
    operations[stage].duration_ns    [step, occurrence, rank]: each operation (see ``operations.py``)
    step_ns[step]                    step time

*Compute time* is the CPU time of the recording thread, if it was measured: it contains no waiting, not even for a
core. Otherwise (ranks on GPUs) it is the duration of the span without the collectives inside. They are excluded because
a span that contains a collective is as long on the victim as on the culprit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from diagnose.findings import StepWindow
from diagnose.model.fleet import NO_FLEET, Fleet
from diagnose.model.operations import Floats, Ints, Operations
from diagnose.model.outages import Effect
from diagnose.model.profiled import Profiled
from diagnose.settings import USUAL, DetectorSettings
from telemetry.clocks.align_evidence import ClockTable
from telemetry.stages import Stage
from telemetry.topology import Topology


class Basis(StrEnum):
    """How a compute time was measured."""

    PROCESSOR_TIME = "processor time"
    SELF_TIME = "time without collectives"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Compute time in one stage: ``ns`` has the shape [steps, ranks]. NaN if a rank has no span."""

    ns: Floats
    basis: Basis
    each_ns: Floats | None = None
    """Compute time of each operation, [steps, occurrences, ranks]. None if only sums are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A number over steps: ``steps`` ascending, ``values`` of the same length. Steps without a value are left out."""

    steps: Ints
    values: Floats

    def without(self, steps: Ints) -> "Series":
        """The same series without the values of ``steps``."""
        kept = ~np.isin(self.steps, steps)
        return Series(steps=self.steps[kept], values=self.values[kept])


SPEEDS = ("tokens-per-second", "mfu")
"""Metrics that fall if steps take longer."""
NO_STEPS = np.zeros(0, dtype=np.int64)
NO_CLOCKS = ClockTable()
NOTHING = Series(steps=NO_STEPS, values=np.zeros(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One attempt over a window of steps. Rows are steps, columns are ranks."""

    run_id: str
    attempt: int
    topology: Topology
    hosts: tuple[str, ...]
    """Host of each rank. Empty text for a rank that never reported."""
    steps: Ints
    """Numbers of the steps, ascending."""
    step_ns: Floats
    work: Mapping[Stage, Work] = field(default_factory=dict)
    off_cpu: Mapping[Stage, Floats] = field(default_factory=dict)
    """Compute stages: self time without CPU time, nanoseconds [steps, ranks]. Empty if it was not measured."""
    overlap: Mapping[Stage, Floats] = field(default_factory=dict)
    """Compute stages: self time that collectives of parameters and gradients cover, [steps, ranks]. A rank may have
    waited for its peers in this time."""
    operations: Mapping[Stage, Operations] = field(default_factory=dict)
    """Every stage in the window, without ``step`` and the collectives inside compute spans."""
    samples: Mapping[str, Series] = field(default_factory=dict)
    """Values over the steps of ``history`` by metric: loss, gradient-norm, tokens-per-second, mfu."""
    history: Series = NOTHING
    """Step times up to the end of the window, in nanoseconds: at most 100,000 steps."""
    profiled: Profiled = field(default_factory=Profiled)
    """Profiles, and steps in which they slowed some ranks. Detectors see ``without_profiled``."""
    step_start_ns: Ints | None = None
    """Wall clock at which the first rank began each step. None if it is not known."""
    fleet: Fleet = NO_FLEET
    """Samples and events of the hosts in this time."""
    effects: tuple[Effect, ...] = ()
    """Link losses and their effects on the steps: see ``outage_effect.with_effects``."""
    settings: DetectorSettings = USUAL
    clocks: ClockTable = NO_CLOCKS
    """Known clock offsets of the hosts. Times in this view are not corrected."""
    on_device: bool = False
    """Whether a device measured compute and communication. Their times are not compared with those of the host
    (data-load, gc, checkpoints), because the host runs ahead."""
    meta: tuple[Mapping[str, str], ...] = ()
    """What each rank reported at its start (``RankIdentity.meta``). Empty if nothing is known."""
    exchanges: Operations | None = None
    """The ep-all-to-all operations, with sizes. They are inside compute spans, so ``operations`` lacks them."""
    inner: Mapping[Stage, Operations] = field(default_factory=dict)
    """The collectives inside compute spans. They are many, so ``load_view`` loads them only with ``with_inner``."""
    exposed: Mapping[Stage, Floats] = field(default_factory=dict)
    """Communication stages: exposed time, nanoseconds [steps, ranks] (``exposed.py``). Empty if it is not known."""
    role: str = ""
    """The role of all ranks, if this is the view of one role (``roles.role_views``)."""
    rank_numbers: tuple[int, ...] = ()
    """In the view of a role: the number that each rank (column) has in the job. Empty if the numbers are the same."""
    places_on_host: tuple[int, ...] = ()
    """In the view of a role: how many ranks of the job are on the host before each rank. Empty: see ``hosts``."""

    @property
    def window(self) -> StepWindow:
        if not len(self.steps):
            return StepWindow(first_step=0, last_step=0)
        return StepWindow(first_step=int(self.steps[0]), last_step=int(self.steps[-1]))

    @property
    def pp_of_rank(self) -> Ints:
        """Pipeline stage of each rank."""
        return self.topology.index["pp"]

    def describe(self, rank: int) -> str:
        """``rank 5 (host gpu-03, dp1 pp0 tp1)``, with its role if this is the view of a role."""
        role = f"role {self.role}, " if self.role else ""
        place = f"{role}{self.topology.describe(rank)}"
        return f"rank {self.number(rank)} (host {self.hosts[rank] or 'unknown'}, {place})"

    def number(self, rank: int) -> int:
        """The number that a rank (column) of this view has in the job. Findings contain these numbers."""
        return self.rank_numbers[rank] if self.rank_numbers else int(rank)

    def numbers(self, ranks: Iterable[int]) -> list[int]:
        """The numbers that several ranks (columns) of this view have in the job."""
        return [self.number(rank) for rank in ranks]

    def newest(self, num_steps: int) -> "RunView":
        """The same view with the last ``num_steps`` steps."""
        return self._of_rows(slice(-num_steps, None))

    def at_steps(self, steps: Ints) -> "RunView":
        """The same view with these steps."""
        return self._of_rows(np.flatnonzero(np.isin(self.steps, steps)))

    def without_profiled(self) -> "RunView":
        """The same view without the steps of profiles, also in ``history`` and in measured speeds."""
        steps = self.profiled.steps
        if not len(steps):
            return self
        speeds = {name: self.samples[name].without(steps) for name in SPEEDS if name in self.samples}
        return replace(
            self._of_rows(np.flatnonzero(~np.isin(self.steps, steps))),
            history=self.history.without(steps),
            samples={**self.samples, **speeds},
        )

    def _of_rows(self, rows: Ints | slice) -> "RunView":
        work = {
            stage: replace(work, ns=work.ns[rows], each_ns=None if work.each_ns is None else work.each_ns[rows])
            for stage, work in self.work.items()
        }
        return replace(
            self,
            steps=self.steps[rows],
            step_ns=self.step_ns[rows],
            step_start_ns=None if self.step_start_ns is None else self.step_start_ns[rows],
            work=work,
            off_cpu={stage: ns[rows] for stage, ns in self.off_cpu.items()},
            overlap={stage: ns[rows] for stage, ns in self.overlap.items()},
            operations={stage: operations.chosen(steps=rows) for stage, operations in self.operations.items()},
            inner={stage: operations.chosen(steps=rows) for stage, operations in self.inner.items()},
            exposed={stage: ns[rows] for stage, ns in self.exposed.items()},
            exchanges=None if self.exchanges is None else self.exchanges.chosen(steps=rows),
        )

    def alone_off_cpu(self, stage: Stage) -> Floats:
        """The least time in a stage in which ranks were off their cores and did not wait for peers, [steps, ranks]."""
        return np.maximum(self.off_cpu[stage] - self.overlap.get(stage, 0.0), 0.0)

    def between(self, first_row: int, last_row: int) -> StepWindow:
        """The window from one row to another, both ends included."""
        return StepWindow(first_step=int(self.steps[first_row]), last_step=int(self.steps[last_row]))
