"""Faults of a simulated run, and faults of the work itself: more work, or slower work.

A fault is a record of its settings. Its ``strike`` changes the conditions at its place and returns the ranks to blame.
Its random numbers depend on the seed of the run and on its position among the faults.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np

from diagnose.findings import Kind
from diagnose.simulate.scene import Conditions, Scene
from telemetry.errors import UsageError
from telemetry.host_metrics import Metric
from telemetry.stages import STAGE_BY_LABEL, Stage

MOST = 1e6
"""Limit of factors, seconds, milliseconds and steps."""
LAST_STEP = 2**31
"""Last step of a fault without an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """The place of a fault. Empty: no particular place."""

    ranks: tuple[int, ...] = ()
    pp: int | None = None


class Fault(Protocol):
    """A fault."""

    kind: ClassVar[Kind]
    """The expected finding."""

    @property
    def first_step(self) -> int: ...

    @property
    def last_step(self) -> int: ...

    def check(self, scene: Scene) -> None:
        """Refuse an impossible fault.

        Raises:
            UsageError: an unknown place, or a setting out of range.
        """

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        """Change the conditions. Returns the place to blame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lasting:
    """A fault from one step to another, both included."""

    first_step: int = 0
    last_step: int = LAST_STEP

    def rows(self, scene: Scene) -> slice:
        return scene.rows(self.first_step, self.last_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed(Lasting):
    """A fault on a rank, on a host, or on all ranks."""

    rank: int = -1
    host: str = ""

    def ranks(self, scene: Scene) -> list[int]:
        return scene.ranks_at(self.rank, self.host)

    def cells(self, scene: Scene) -> tuple[slice, list[int]]:
        """Index of its steps and ranks in arrays of [steps, ranks]."""
        return self.rows(scene), self.ranks(scene)

    def blame(self, scene: Scene) -> Blame:
        """The affected ranks. Empty if all ranks are affected."""
        return Blame(ranks=tuple(self.ranks(scene)) if self.rank >= 0 or self.host else ())

    def check_somewhere(self, scene: Scene, example: str) -> None:
        scene.check_place(self.rank, self.host)
        if self.rank < 0 and not self.host:
            raise UsageError("a fault needs a place", hint=f"add rank= or host=, such as {example}")


def check_least(least: float, **setting: float) -> None:
    ((name, value),) = setting.items()
    if not least <= value <= MOST:
        raise UsageError(f"a fault has {name}={value}", hint=f"use a number from {least:g} to {MOST:,.0f}")


def check_share(share: float) -> None:
    if not 0 < share <= 1:
        raise UsageError(f"a fault has share={share}", hint="use a share above 0, and at most 1")


def check_network(scene: Scene, axis: str) -> None:
    degrees = {"dp": scene.topology.dp, "pp": scene.topology.pp}
    if max(degrees.values() if axis == "all" else [degrees[axis]]) == 1:
        raise UsageError(
            "the fault is on a network that no rank uses", hint="use a larger --dp or --pp, or another axis="
        )


THROTTLING: dict[str, Metric] = {
    "heat": Metric.GPU_THROTTLE_SOFTWARE_THERMAL_NS,
    "power": Metric.GPU_THROTTLE_POWER_NS,
    "brake": Metric.GPU_THROTTLE_POWER_BRAKE_NS,
}
"""Reason for reduced clocks -> its counter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow(Placed):
    """A rank, or all ranks of a host, with ``factor`` times the compute time."""

    kind: ClassVar[Kind] = Kind.COMPUTE_STRAGGLER
    factor: float

    def check(self, scene: Scene) -> None:
        self.check_somewhere(scene, "slow:rank=5,factor=1.4")
        check_least(1.0, factor=self.factor)

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        conditions.work[self.cells(conditions.scene)] *= self.factor
        return self.blame(conditions.scene)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle(Placed):
    """A rank whose GPU clocks are reduced: in ``waves`` of ``period`` steps, or on a ``ramp`` from 1 to ``factor``."""

    kind: ClassVar[Kind] = Kind.GPU_THROTTLED
    factor: float
    shape: Literal["waves", "ramp"] = "waves"
    period: int = 10
    reason: Literal["heat", "power", "brake"] = "heat"

    def check(self, scene: Scene) -> None:
        self.check_somewhere(scene, "throttle:rank=5,factor=1.4")
        check_least(1.0, factor=self.factor)
        check_least(2, period=self.period)
        if scene.on_cpu:
            raise UsageError("a throttled GPU needs compute on the GPU", hint="remove --device cpu")

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        cells = self.cells(conditions.scene)
        num = len(conditions.scene.steps[cells[0]])
        waves = np.where(np.arange(num) % self.period < self.period / 2, self.factor, 1.0)
        factor = waves if self.shape == "waves" else np.linspace(1.0, self.factor, num)
        conditions.work[cells] *= factor[:, None]
        conditions.held_down_by(THROTTLING[self.reason])[cells] *= factor[:, None]
        return self.blame(conditions.scene)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyStage(Lasting):
    """A pipeline stage with more work than the others."""

    kind: ClassVar[Kind] = Kind.STAGE_IMBALANCE
    pp: int
    factor: float

    def check(self, scene: Scene) -> None:
        check_least(0.0, factor=self.factor)
        if not 0 <= self.pp < scene.topology.pp:
            raise UsageError(
                f"a fault is on stage {self.pp}", hint=f"stages of this grid are 0 to {scene.topology.pp - 1}"
            )

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        conditions.work[self.rows(conditions.scene), conditions.scene.on_pp(self.pp)] *= self.factor
        return Blame(pp=self.pp)


DURATIONS = (
    *(Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE, Stage.OPTIMIZER, Stage.DATA_LOAD, Stage.TP_ALL_REDUCE),
    *(Stage.PARAMS_ALL_GATHER, Stage.GRADS_REDUCE_SCATTER, Stage.FORWARD_SEND, Stage.BACKWARD_SEND),
)
"""Stages whose time the fault ``LongStage`` can change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LongStage(Lasting):
    """A stage that takes ``factor`` times as long on all ranks, such as after an upgrade of a driver or library."""

    kind: ClassVar[Kind] = Kind.MFU_DECLINE
    stage: str
    """Label of one of ``DURATIONS``."""
    factor: float

    def check(self, scene: Scene) -> None:
        check_least(0.0, factor=self.factor)
        known = [stage.label for stage in DURATIONS]
        if self.stage not in known:
            raise UsageError(f"a fault is on the stage {self.stage!r}", hint=f"stages are {', '.join(known)}")

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        factors = conditions.stage_factors(STAGE_BY_LABEL[self.stage])
        factors[self.rows(conditions.scene)] *= self.factor
        return Blame()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences(Lasting):
    """Microbatches of unequal work, equal in forward and backward on all pipeline ranks."""

    kind: ClassVar[Kind] = Kind.DATA_IMBALANCE
    spread: float
    shape: Literal["lognormal", "heavy"] = "lognormal"

    def check(self, scene: Scene) -> None:
        check_least(0.0, spread=self.spread)
        if self.spread >= 1:
            raise UsageError(f"a fault with spread={self.spread}", hint="such as spread=0.3")

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        """The mean factor is one: work is distributed unevenly, not added."""
        factors = conditions.sequences[self.rows(conditions.scene)]
        if self.shape == "lognormal":
            factors *= np.exp(random.normal(-(self.spread**2) / 2, self.spread, factors.shape))
        else:
            factors *= 1 + self.spread * (random.pareto(2.5, factors.shape) * 1.5 - 1)
        return Blame()


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A loss that jumps by ``size`` in one step and recovers within twenty, or is NaN from there on."""

    kind: ClassVar[Kind] = Kind.LOSS_ANOMALY
    step: int
    how: Literal["jump", "nan"] = "jump"
    size: float = 2.0

    @property
    def first_step(self) -> int:
        return self.step

    @property
    def last_step(self) -> int:
        return self.step if self.how == "jump" else LAST_STEP

    def check(self, scene: Scene) -> None:
        check_least(scene.first_step, step=self.step)
        check_least(0.0, size=self.size)

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        row = self.step - conditions.scene.first_step
        after = np.arange(conditions.scene.num_steps - row)
        if self.how == "jump":
            conditions.loss[row:] += self.size * np.exp(-after / 5)
            conditions.gradient_norm[row:] *= 1 + 4 * np.exp(-after / 2)
        else:
            conditions.loss[row:] = np.nan
            conditions.gradient_norm[row:] = np.nan
        return Blame()
