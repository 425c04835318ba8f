"""The host's clock: CLOCK_MONOTONIC, tied to wall time by anchors."""

from dataclasses import dataclass
from time import monotonic_ns, time_ns

TRIES = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """One instant on both clocks of a host."""

    monotonic_ns: int
    wall_ns: int
    error_ns: int = 0
    """The largest time between the two readings; 0 if it is not known."""

    def to_wall_ns(self, at_ns: int) -> int:
        """Nanoseconds since the epoch of a CLOCK_MONOTONIC time, or of an array of them."""
        return at_ns + (self.wall_ns - self.monotonic_ns)


def measure_anchor(tries: int = TRIES) -> Anchor:
    """Reads the wall clock between two readings of the monotonic clock. Uses the tightest of ``tries``."""
    return min((_bracket() for _ in range(tries)), key=lambda anchor: anchor.error_ns)


def _bracket() -> Anchor:
    before = monotonic_ns()
    wall = time_ns()
    after = monotonic_ns()
    return Anchor(monotonic_ns=(before + after) // 2, wall_ns=wall, error_ns=after - before)
