"""A kernel's counts of one carrier, and a sampler's view of them. Changes may come between any two reads.

Kernel   lose, gain, take_down, put_up; message(): what netlink would send now, and torn ones
Window   reads the kernel as sysfs does; before each read, one due change happens
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from telemetry.agent.samplers.carrier import Numbers
from telemetry.agent.samplers.link_events import LinkMessage, LinkState

NAME, ADDRESS, INDEX = "eth0", "0c:42:a1:00:00:01", 7


@dataclass(slots=True)
class Kernel:
    """One interface. A driver may start with its carrier off. This is not counted as a loss."""

    has_carrier: bool = True
    is_put_up: bool = True
    downs: int = 0
    ups: int = 0
    num_taken: int = 0
    """Losses that its owner caused."""

    def lose(self) -> None:
        if self.has_carrier:
            self.has_carrier = False
            self.downs += 1

    def gain(self) -> None:
        if self.is_put_up and not self.has_carrier:
            self.has_carrier = True
            self.ups += 1

    def take_down(self) -> None:
        self.num_taken += self.has_carrier
        self.lose()
        self.is_put_up = False

    def put_up(self) -> None:
        self.is_put_up = True

    def message(self, at_ns: int, between: Callable[[], None] = lambda: None) -> LinkMessage:
        """Read the carrier first and the counts after it. ``between`` may change the counts."""
        has_carrier, is_put_up = self.has_carrier, self.is_put_up
        between()
        return LinkMessage(
            at_ns=at_ns,
            index=INDEX,
            name=NAME,
            address=ADDRESS,
            is_deleted=False,
            is_put_up=is_put_up,
            has_carrier=has_carrier,
            downs=self.downs,
            ups=self.ups,
            changes=self.downs + self.ups,
        )

    @property
    def state(self) -> LinkState:
        if not self.is_put_up:
            return LinkState.TAKEN_DOWN
        return LinkState.UP if self.has_carrier else LinkState.DOWN


@dataclass(slots=True)
class Window:
    """``due``: changes, one before each read, the last of the list first."""

    kernel: Kernel
    counts_each_way: bool = True
    due: list[Callable[[], None]] = field(default_factory=list)

    def numbers(self) -> Numbers:
        downs = self._now().downs
        ups = self._now().ups
        return (downs, ups, None) if self.counts_each_way else (None, None, self.kernel.downs + self.kernel.ups)

    def state(self) -> LinkState:
        return self._now().state

    def operstate(self) -> str:
        return ""

    def _now(self) -> Kernel:
        if self.due:
            self.due.pop()()
        return self.kernel
