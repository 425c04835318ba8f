"""Faults of what goes between hosts."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from diagnose.findings import Kind
from diagnose.simulate.conditions import Conditions
from diagnose.simulate.faults import Blame, Lasting, Placed, check_least, check_network, check_somewhere
from diagnose.simulate.scene import Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLink(Placed):
    """All that goes over a rank's or a host's network takes ``factor`` times as long, for whoever takes part."""

    kind: ClassVar[Kind] = Kind.SLOW_LINK
    factor: float
    axis: Literal["all", "dp", "pp"] = "all"

    def check(self, scene: Scene) -> None:
        check_somewhere(self, scene, "link:host=gpu-000,factor=3")
        check_least(1.0, factor=self.factor)
        check_network(scene, self.axis)

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        rows, ranks = self.rows(conditions.scene), self.ranks(conditions.scene)
        if self.axis != "pp":
            conditions.dp_link[rows, ranks] *= self.factor
        if self.axis != "dp":
            conditions.pp_link[rows, ranks] *= self.factor
        return self.blame(conditions.scene)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flap(Placed):
    """A network interface that goes down and comes back, ``times`` in the run."""

    kind: ClassVar[Kind] = Kind.SLOW_LINK
    seconds: float = 4.0
    times: int = 3

    def check(self, scene: Scene) -> None:
        check_somewhere(self, scene, "flap:host=gpu-000,seconds=4")
        check_least(0.0, seconds=self.seconds)
        check_least(1, times=self.times)
        check_network(scene, "all")

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        rows = np.arange(conditions.scene.num_steps)[self.rows(conditions.scene)]
        for row in random.permutation(rows)[: self.times]:
            silence = self.seconds * random.uniform(0.7, 1.3)
            conditions.silence_s[row, self.ranks(conditions.scene)] += silence
        return self.blame(conditions.scene)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decline(Lasting):
    """Communication of all ranks that grows, up to ``factor`` times in the last step."""

    kind: ClassVar[Kind] = Kind.MFU_DECLINE
    factor: float

    def check(self, scene: Scene) -> None:
        check_least(1.0, factor=self.factor)
        check_network(scene, "all")

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        rows = self.rows(conditions.scene)
        growth = np.linspace(1.0, self.factor, len(conditions.dp_link[rows]))[:, None]
        conditions.dp_link[rows] *= growth
        conditions.pp_link[rows] *= growth
        return Blame()
