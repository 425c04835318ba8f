"""What has been told of one link, so that each time it was lost is told exactly once.

    netlink: (state, count) at arrival --.
    a look:  (state, count) as read -----+--observe--> LINK_DOWN  LINK_UP  LINK_FLAPS  LINK_TAKEN_DOWN
                                              |
                     counted: the kernel's number as far as it has been told

The kernel's count is the truth and states are what was seen of it. Of ``growth`` since the observation before, one
belongs to a link that was up and is not (LINK_DOWN, or LINK_TAKEN_DOWN by its owner); the rest came and went unseen:
LINK_FLAPS. So over any while

    LINK_DOWN + sum(LINK_FLAPS) + LINK_TAKEN_DOWN that cost a carrier == growth of the kernel's count

where LINK_DOWN of a link that was down as sampling began is left out: its text begins with ``LINK_ALREADY_DOWN``.
"""

from enum import Enum

from telemetry.agent.samplers.interface import Event
from telemetry.host_metrics import LINK_ALREADY_DOWN, Happening


class LinkState(Enum):
    UP = "up"
    DOWN = "down"
    TAKEN_DOWN = "taken down"


class LinkLedger:
    """One link. Observations come in the order in which they were true."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.state: LinkState | None = None
        """As told; None before the first observation."""
        self._counted: int | None = None
        self._is_ahead = False
        """A loss was told that the kernel had not counted yet."""

    def observe(self, at_ns: int, state: LinkState, downs: int | None, why: str) -> list[Event]:
        """What is new. ``downs``: how often the link was lost, as the kernel counts; None where it does not say.

        A count that falls began anew with its device: nothing is told of what it lost by that.
        """
        unseen = self._growth(downs)
        before, self.state = self.state, state
        if before is None:
            return self._begin(at_ns, state, why)
        if before is LinkState.UP and state is LinkState.UP and not unseen:
            self._is_ahead = False  # a link that is still up after a loss that nobody counted: none is coming
            return []
        if state is LinkState.UP:
            came = [] if before is state else [self._event(at_ns, Happening.LINK_UP, why)]
            return self._flaps(at_ns, unseen) + came
        if before is LinkState.UP and not unseen:
            self._is_ahead = True
            return [self._lost(at_ns, state, why, counted=True)]
        return self._stays_lost(at_ns, before, state, unseen, why)

    def _stays_lost(self, at_ns: int, before: LinkState, state: LinkState, unseen: int, why: str) -> list[Event]:
        """Not up now; it was up before or in between, or never."""
        if before is state:
            return self._flaps(at_ns, unseen)
        if unseen:
            return [*self._flaps(at_ns, unseen - 1), self._lost(at_ns, state, why, counted=True)]
        if state is LinkState.TAKEN_DOWN:
            return [self._lost(at_ns, state, why, counted=False)]
        self.state = before  # put up again by its owner, still without a link: it was not lost anew
        return []

    def _growth(self, downs: int | None) -> int:
        if downs is None:
            return 0
        before, self._counted = self._counted, downs
        if before is None:
            return 0
        growth = downs - before
        if growth > 0 and self._is_ahead:
            growth -= 1
        if downs != before:
            self._is_ahead = False
        return max(growth, 0)

    def _begin(self, at_ns: int, state: LinkState, why: str) -> list[Event]:
        if state is LinkState.UP:
            return []
        name = Happening.LINK_DOWN if state is LinkState.DOWN else Happening.LINK_TAKEN_DOWN
        return [self._event(at_ns, name, f"{LINK_ALREADY_DOWN} when sampling began: {why}")]

    def _lost(self, at_ns: int, state: LinkState, why: str, *, counted: bool) -> Event:
        if state is LinkState.DOWN:
            return self._event(at_ns, Happening.LINK_DOWN, why)
        cost = "its carrier went with it" if counted else "it had no carrier"
        return self._event(at_ns, Happening.LINK_TAKEN_DOWN, f"taken down by its owner; {cost}")

    def _flaps(self, at_ns: int, unseen: int) -> list[Event]:
        return [self._event(at_ns, Happening.LINK_FLAPS, str(unseen))] if unseen else []

    def _event(self, at_ns: int, name: Happening, text: str) -> Event:
        return Event(at_ns=at_ns, device=self.device, name=name, text=text)
