"""Faults of what goes between hosts."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from diagnose.findings import Kind
from diagnose.simulate.conditions import Conditions, Silence
from diagnose.simulate.faults import Blame, Lasting, Placed, check_least, check_network, check_somewhere
from diagnose.simulate.scene import Scene
from telemetry.errors import UsageError

HOST_CARD = "eth0"


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
    """A network card that loses its link and has it again, ``times`` in the run: ``eth0`` of a host, or the one beside
    a rank's GPU. Its host is to blame, with all its ranks."""

    kind: ClassVar[Kind] = Kind.NIC_FLAP
    seconds: float = 4.0
    times: int = 3

    def check(self, scene: Scene) -> None:
        check_somewhere(self, scene, "flap:host=gpu-000,seconds=4")
        check_least(0.0, seconds=self.seconds)
        check_least(1, times=self.times)
        check_network(scene, "all")
        if not self._struck(scene):
            raise UsageError("a flap of a card that nothing goes over", hint="another place, or fewer --ranks-per-host")

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        scene = conditions.scene
        ranks = self._struck(scene)
        host = scene.hosts[ranks[0]]
        home = scene.ranks_on(host)
        device = HOST_CARD if self.host else f"mlx5_{home.index(self.rank)}/1"
        for row in random.permutation(np.arange(scene.num_steps)[self.rows(scene)])[: self.times].tolist():
            seconds = self.seconds * random.uniform(0.7, 1.3)
            conditions.silence_s[row, ranks] += seconds
            conditions.silences.append(Silence(row=row, ranks=tuple(ranks), host=host, device=device, seconds=seconds))
        return Blame(ranks=tuple(home))

    def _struck(self, scene: Scene) -> list[int]:
        """Ranks that feel it: of a lone replica those whose gradients leave the host, or else come from another."""
        ranks = self.ranks(scene)
        if scene.topology.dp > 1:
            return ranks if len(set(scene.hosts)) > 1 else []
        senders = [rank for rank in ranks if scene.leaves_host(rank, -1)]
        return senders or [rank for rank in ranks if scene.leaves_host(rank, 1)]


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
