"""Faults of the work itself: who has more of it, or takes longer for it."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from diagnose.findings import Kind
from diagnose.simulate.faults import LAST_STEP, Blame, Lasting, Placed, check_least, check_somewhere
from diagnose.simulate.scene import Conditions, Scene
from telemetry.errors import UsageError
from telemetry.host_metrics import Metric

THROTTLING: dict[str, Metric] = {
    "heat": Metric.GPU_THROTTLE_SOFTWARE_THERMAL_NS,
    "power": Metric.GPU_THROTTLE_POWER_NS,
    "brake": Metric.GPU_THROTTLE_POWER_BRAKE_NS,
}
"""Why clocks are held down -> the counter that tells it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow(Placed):
    """A rank, or all of a host, whose compute takes ``factor`` times as long."""

    kind: ClassVar[Kind] = Kind.COMPUTE_STRAGGLER
    factor: float

    def check(self, scene: Scene) -> None:
        check_somewhere(self, scene, "slow:rank=5,factor=1.4")
        check_least(1.0, factor=self.factor)

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        conditions.work[self.rows(conditions.scene), self.ranks(conditions.scene)] *= self.factor
        return self.blame(conditions.scene)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle(Placed):
    """A rank whose GPU is held down: in ``waves`` of ``period`` steps, or on a ``ramp`` from healthy to ``factor``."""

    kind: ClassVar[Kind] = Kind.GPU_THROTTLED
    factor: float
    shape: Literal["waves", "ramp"] = "waves"
    period: int = 10
    reason: Literal["heat", "power", "brake"] = "heat"

    def check(self, scene: Scene) -> None:
        check_somewhere(self, scene, "throttle:rank=5,factor=1.4")
        check_least(1.0, factor=self.factor)
        check_least(2, period=self.period)
        if scene.on_cpu:
            raise UsageError("a throttled GPU needs compute on the GPU", hint="remove --device cpu")

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        rows, ranks = self.rows(conditions.scene), self.ranks(conditions.scene)
        num = len(conditions.scene.steps[rows])
        waves = np.where(np.arange(num) % self.period < self.period / 2, self.factor, 1.0)
        factor = waves if self.shape == "waves" else np.linspace(1.0, self.factor, num)
        conditions.work[rows, ranks] *= factor[:, None]
        conditions.held_down_by(THROTTLING[self.reason])[rows, ranks] *= factor[:, None]
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
                f"a fault on stage {self.pp}", hint=f"stages of this grid are 0 to {scene.topology.pp - 1}"
            )

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        conditions.work[self.rows(conditions.scene), conditions.scene.on_pp(self.pp)] *= self.factor
        return Blame(pp=self.pp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequences(Lasting):
    """Microbatches of unequal work: forward and backward of one take longer or shorter on all its pipeline ranks."""

    kind: ClassVar[Kind] = Kind.DATA_IMBALANCE
    spread: float
    shape: Literal["lognormal", "heavy"] = "lognormal"

    def check(self, scene: Scene) -> None:
        check_least(0.0, spread=self.spread)
        if self.spread >= 1:
            raise UsageError(f"a fault with spread={self.spread}", hint="such as spread=0.3")

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        """Either way the mean factor is one: work is shared out badly, not added."""
        factors = conditions.sequences[self.rows(conditions.scene)]
        if self.shape == "lognormal":
            factors *= np.exp(random.normal(-(self.spread**2) / 2, self.spread, factors.shape))
        else:
            factors *= 1 + self.spread * (random.pareto(2.5, factors.shape) * 1.5 - 1)
        return Blame()


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A loss that jumps by ``size`` in one step and comes back within twenty, or is no number from there on."""

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
