"""What can go wrong in a simulated run: each fault knows what it does to the conditions, and who is to blame.

A fault is a record of its settings. Its ``strike`` changes the conditions where it sits and tells the truth about it;
what it draws at random comes from the seed of the run and its place among the faults.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from diagnose.findings import Kind
from diagnose.simulate.scene import Conditions, Scene
from telemetry.errors import UsageError

MOST = 1e6
"""Of any factor, of seconds, milliseconds and steps: more no run survives."""
LAST_STEP = 2**31
"""Of a fault that never ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """The truth about a fault: where it sits. Empty: nowhere in particular."""

    ranks: tuple[int, ...] = ()
    pp: int | None = None


class Fault(Protocol):
    """Something that goes wrong."""

    kind: ClassVar[Kind]
    """The finding that names it."""

    @property
    def first_step(self) -> int: ...

    @property
    def last_step(self) -> int: ...

    def check(self, scene: Scene) -> None:
        """Refuse what cannot be.

        Raises:
            UsageError: a place that is not there, or a setting out of range.
        """

    def strike(self, conditions: Conditions, random: np.random.Generator) -> Blame:
        """Change the conditions; who is to blame for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lasting:
    """From one step to another, both included."""

    first_step: int = 0
    last_step: int = LAST_STEP

    def rows(self, scene: Scene) -> slice:
        return scene.rows(self.first_step, self.last_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed(Lasting):
    """On a rank, on a host, or on all."""

    rank: int = -1
    host: str = ""

    def ranks(self, scene: Scene) -> list[int]:
        return scene.ranks_at(self.rank, self.host)

    def blame(self, scene: Scene) -> Blame:
        """All of them stand for none in particular."""
        return Blame(ranks=tuple(self.ranks(scene)) if self.rank >= 0 or self.host else ())


def check_somewhere(fault: Placed, scene: Scene, example: str) -> None:
    scene.check_place(fault.rank, fault.host)
    if fault.rank < 0 and not fault.host:
        raise UsageError("a fault needs a place", hint=f"rank= or host=, such as {example}")


def check_least(least: float, **setting: float) -> None:
    ((name, value),) = setting.items()
    if not least <= value <= MOST:
        raise UsageError(f"a fault with {name}={value}", hint=f"{name} is a number from {least:g} to {MOST:,.0f}")


def check_share(share: float) -> None:
    if not 0 < share <= 1:
        raise UsageError(f"a fault with share={share}", hint="a share is above 0 and at most 1")


def check_network(scene: Scene, axis: str) -> None:
    degrees = {"dp": scene.topology.dp, "pp": scene.topology.pp}
    if max(degrees.values() if axis == "all" else [degrees[axis]]) == 1:
        raise UsageError("the fault is on a network that no rank uses", hint="a larger --dp or --pp, or another axis=")
