"""Faults of hosts and of the network between them: links, garbage collection, cores, data, launches, checkpoints."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from diagnose.findings import Kind
from diagnose.simulate.faults import Blame, Lasting, Placed, check_least, check_network, check_share
from diagnose.simulate.scene import Conditions, Scene, Silence
from telemetry.errors import UsageError

HOST_CARD = "eth0"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLink(Placed):
    """Transfers over the network of a rank or host take ``factor`` times as long, for all members."""

    kind: ClassVar[Kind] = Kind.SLOW_LINK
    factor: float
    axis: Literal["all", "dp", "pp"] = "all"

    def check(self, scene: Scene) -> None:
        self.check_somewhere(scene, "link:host=gpu-000,factor=3")
        check_least(1.0, factor=self.factor)
        check_network(scene, self.axis)

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        cells = self.cells(conditions.scene)
        if self.axis != "pp":
            conditions.dp_link[cells] *= self.factor
        if self.axis != "dp":
            conditions.pp_link[cells] *= self.factor
        return self.blame(conditions.scene)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flap(Placed):
    """A network card that loses its link for a while, ``times`` in the run: ``eth0`` of a host, or the card next to a
    rank's GPU. Its host is to blame, with all its ranks."""

    kind: ClassVar[Kind] = Kind.NIC_FLAP
    seconds: float = 4.0
    times: int = 3

    def check(self, scene: Scene) -> None:
        self.check_somewhere(scene, "flap:host=gpu-000,seconds=4")
        check_least(0.0, seconds=self.seconds)
        check_least(1, times=self.times)
        check_network(scene, "all")
        if not self._affected(scene):
            raise UsageError(
                "the flap is on a card that carries no traffic",
                hint="choose another place, or use fewer --ranks-per-host",
            )

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        scene = conditions.scene
        ranks = self._affected(scene)
        host = scene.hosts[ranks[0]]
        home = scene.ranks_on(host)
        device = HOST_CARD if self.host else f"mlx5_{home.index(self.rank)}/1"
        for row in random.permutation(np.arange(scene.num_steps)[self.rows(scene)])[: self.times].tolist():
            seconds = self.seconds * random.uniform(0.7, 1.3)
            conditions.silence_s[row, ranks] += seconds
            conditions.silences.append(Silence(row=row, ranks=tuple(ranks), host=host, device=device, seconds=seconds))
        return Blame(ranks=tuple(home))

    def _affected(self, scene: Scene) -> list[int]:
        """Affected ranks. With one replica: those whose gradients leave the host. If there are none: those whose
        gradients come from another host."""
        ranks = self.ranks(scene)
        if scene.topology.dp > 1:
            return ranks if len(set(scene.hosts)) > 1 else []
        senders = [rank for rank in ranks if scene.leaves_host(rank, -1)]
        return senders or [rank for rank in ranks if scene.leaves_host(rank, 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decline(Lasting):
    """Communication time of all ranks that grows, up to ``factor`` times in the last step."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Collections(Placed):
    """Garbage collection inside a forward: on a ``share`` of the ranks, on average once in ``every`` steps."""

    kind: ClassVar[Kind] = Kind.LATE_LAUNCH
    every: float = 8.0
    ms: float = 200.0
    share: float = 1.0

    def check(self, scene: Scene) -> None:
        scene.check_place(self.rank, self.host)
        if scene.collects_by_plan:
            raise UsageError("irregular garbage collection does not work with --planned-gc", hint="remove --planned-gc")
        check_least(1.0, every=self.every)
        check_least(0.0, ms=self.ms)
        check_share(self.share)

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        scene = conditions.scene
        ranks = np.array(self.ranks(scene))
        chosen = np.sort(random.permutation(ranks)[: max(1, round(len(ranks) * self.share))])
        hit = np.zeros(conditions.work.shape, dtype=bool)
        hit[self.rows(scene), chosen] = True
        hit &= random.random(conditions.work.shape) < 1 / self.every
        burst = self.ms / 1e3 * np.exp(random.normal(0.0, 0.3, hit.shape))
        conditions.collection_s[hit] += burst[hit]
        forwards = scene.num_microbatches * scene.num_chunks
        conditions.collection_in[hit] = random.integers(0, forwards, hit.shape)[hit]
        return Blame(ranks=tuple(np.flatnonzero(hit.any(axis=0)).tolist()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention(Placed):
    """Other processes on the cores of a host: ``factor`` times the wall time of compute, the same processor time."""

    kind: ClassVar[Kind] = Kind.HOST_CONTENTION
    factor: float

    def check(self, scene: Scene) -> None:
        self.check_somewhere(scene, "contention:host=gpu-000,factor=1.5")
        check_least(1.0, factor=self.factor)
        if not scene.on_cpu:
            raise UsageError("host contention needs compute on the CPU", hint="add --device cpu")

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        conditions.wall[self.cells(conditions.scene)] *= self.factor
        return self.blame(conditions.scene)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataStall(Placed):
    """Data that arrives ``seconds`` late in a ``share`` of the steps."""

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
    """Gradients that are launched late: delays of each rank vary and grow, up to ``ms``. Compute does not change."""

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
    """A rank or host whose checkpoints take ``factor`` times as long to write."""

    kind: ClassVar[Kind] = Kind.CHECKPOINT_SLOW
    factor: float

    def check(self, scene: Scene) -> None:
        scene.check_place(self.rank, self.host)
        check_least(1.0, factor=self.factor)
        if not scene.checkpoint_every:
            raise UsageError("a slow checkpoint needs a run with checkpoints", hint="add --checkpoint-every 10")

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        conditions.write[self.cells(conditions.scene)] *= self.factor
        return self.blame(conditions.scene)
