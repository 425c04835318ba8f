"""Faults of hosts beside the work: collections, cores, data, launches, checkpoints."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from diagnose.findings import Kind
from diagnose.model.operations import Bools, Int64s
from diagnose.simulate.conditions import Conditions
from diagnose.simulate.faults import Blame, Placed, check_least, check_share, check_somewhere
from diagnose.simulate.scene import Scene
from telemetry.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Collections(Placed):
    """Bursts of garbage collection inside a forward: on a ``share`` of the ranks, each ``every`` so many steps."""

    kind: ClassVar[Kind] = Kind.LATE_LAUNCH
    every: float = 8.0
    ms: float = 200.0
    share: float = 1.0

    def check(self, scene: Scene) -> None:
        scene.check_place(self.rank, self.host)
        if scene.collects_by_plan:
            raise UsageError("irregular collections where they are planned", hint="leave out --planned-gc")
        check_least(1.0, every=self.every)
        check_least(0.0, ms=self.ms)
        check_share(self.share)

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        scene = conditions.scene
        ranks = np.array(self.ranks(scene))
        chosen = np.sort(random.permutation(ranks)[: max(1, round(len(ranks) * self.share))])
        hit = _cells(conditions, self.rows(scene), chosen) & (random.random(conditions.work.shape) < 1 / self.every)
        burst = self.ms / 1e3 * np.exp(random.normal(0.0, 0.3, hit.shape))
        conditions.collection_s[hit] += burst[hit]
        forwards = scene.num_microbatches * scene.num_chunks
        conditions.collection_in[hit] = random.integers(0, forwards, hit.shape)[hit]
        return Blame(ranks=tuple(np.flatnonzero(hit.any(axis=0)).tolist()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention(Placed):
    """Somebody else on the cores of a host: compute takes ``factor`` times the wall time, no more processor time."""

    kind: ClassVar[Kind] = Kind.HOST_CONTENTION
    factor: float

    def check(self, scene: Scene) -> None:
        check_somewhere(self, scene, "contention:host=gpu-000,factor=1.5")
        check_least(1.0, factor=self.factor)
        if not scene.on_cpu:
            raise UsageError("contention where compute is on GPUs", hint="add --device cpu")

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        conditions.wall[self.rows(conditions.scene), self.ranks(conditions.scene)] *= self.factor
        return self.blame(conditions.scene)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataStall(Placed):
    """Data that comes ``seconds`` late in a ``share`` of the steps."""

    kind: ClassVar[Kind] = Kind.DATA_STALL
    seconds: float
    share: float = 0.2

    def check(self, scene: Scene) -> None:
        scene.check_place(self.rank, self.host)
        check_least(0.0, seconds=self.seconds)
        check_share(self.share)

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        scene = conditions.scene
        rows = np.arange(scene.num_steps)[self.rows(scene)]
        late = np.sort(random.permutation(rows)[: max(1, round(len(rows) * self.share))])
        conditions.data_s[np.ix_(late, np.array(self.ranks(scene)))] += self.seconds * random.uniform(
            0.7, 1.3, (len(late), 1)
        )
        return self.blame(scene)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift(Placed):
    """Gradients launched later and later: delays of each rank fluctuate and grow, up to ``ms``; compute is as ever."""

    kind: ClassVar[Kind] = Kind.LATE_LAUNCH
    ms: float = 100.0

    def check(self, scene: Scene) -> None:
        scene.check_place(self.rank, self.host)
        check_least(0.0, ms=self.ms)

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        scene = conditions.scene
        rows = self.rows(scene)
        delay = random.gamma(2.0, 0.25, conditions.launch_s.shape) * self.ms / 1e3
        growth = np.zeros((scene.num_steps, 1))
        growth[rows, 0] = np.linspace(0.0, 1.0, len(growth[rows]))
        ranks = self.ranks(scene)
        conditions.launch_s[:, ranks] += (delay * growth)[:, ranks]
        return self.blame(scene)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowWriter(Placed):
    """A rank, or a host, whose checkpoints take ``factor`` times as long to write."""

    kind: ClassVar[Kind] = Kind.CHECKPOINT_SLOW
    factor: float

    def check(self, scene: Scene) -> None:
        scene.check_place(self.rank, self.host)
        check_least(1.0, factor=self.factor)
        if not scene.checkpoint_every:
            raise UsageError("a slow checkpoint in a run without any", hint="add --checkpoint-every 10")

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        conditions.write[self.rows(conditions.scene), self.ranks(conditions.scene)] *= self.factor
        return self.blame(conditions.scene)


def _cells(conditions: Conditions, rows: slice, ranks: Int64s) -> Bools:
    chosen = np.zeros(conditions.work.shape, dtype=bool)
    chosen[rows, ranks] = True
    return chosen
