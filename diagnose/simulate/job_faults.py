"""Faults of jobs with roles or experts: no rank is faulty, but work is distributed badly."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from diagnose.findings import Kind
from diagnose.simulate.faults import Blame, Lasting, check_least, check_share
from diagnose.simulate.scene import Conditions, Scene
from telemetry.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail(Lasting):
    """In a ``share`` of the steps, the rollouts of one random rank take ``factor`` times as long as typical ones."""

    kind: ClassVar[Kind] = Kind.ROLLOUT_TAIL
    factor: float
    share: float = 1.0

    def check(self, scene: Scene) -> None:
        check_least(1.0, factor=self.factor)
        check_share(self.share)
        if "rollout" not in scene.roles:
            raise UsageError("a fault of kind tail needs a role with rollouts", hint="use --roles rollout=8,actor=4")

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        tail = conditions.tail[self.rows(conditions.scene)]
        tail[random.random(len(tail)) < self.share] = self.factor
        return Blame()


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleRole(Lasting):
    """A role with ``factor`` times less work than it has time for."""

    kind: ClassVar[Kind] = Kind.ROLE_IDLE
    role: str
    factor: float

    def check(self, scene: Scene) -> None:
        check_least(1.0, factor=self.factor)
        if self.role not in scene.roles:
            known = ", ".join(dict.fromkeys(scene.roles)) or "none: use --roles rollout=8,actor=4"
            raise UsageError(f"a fault is on role {self.role!r}", hint=f"roles of this job: {known}")

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        scene = conditions.scene
        ranks = [rank for rank, role in enumerate(scene.roles) if role == self.role]
        conditions.work[self.rows(scene), ranks] /= self.factor
        return Blame()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnequalExperts(Lasting):
    """The experts of the ranks at one place along the axis ep receive ``factor`` times the mean number of tokens."""

    kind: ClassVar[Kind] = Kind.EXPERT_IMBALANCE
    factor: float
    ep: int = 0

    def check(self, scene: Scene) -> None:
        check_least(1.0, factor=self.factor)
        if not scene.experts:
            raise UsageError("a fault of kind experts needs a run with experts", hint="add --experts --mesh dp=2,ep=4")
        degree = dict(scene.topology.mesh)["ep"]
        if not 0 <= self.ep < degree or self.factor >= degree:
            raise UsageError(
                f"unequal experts at ep={self.ep} with factor={self.factor:g}",
                hint=f"use ep and factor below {degree}, the degree of the axis ep",
            )

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        """The others receive less: the number of tokens does not change."""
        topology, rows = conditions.scene.topology, self.rows(conditions.scene)
        degree = dict(topology.mesh)["ep"]
        place = np.array([topology.coordinates(rank)["ep"] for rank in range(topology.world_size)])
        others = (degree - self.factor) / (degree - 1)
        conditions.tokens[rows] *= np.where(place == self.ep, self.factor, others)
        return Blame()
