"""Delay between attempts while the collector cannot accept rows.

failures in a row      1       2       3       4       5 ...
seconds                0.5     1       2       4       8, 10, 10 ...    or Retry-After, if that is longer
random factor          1 to 2, so that thousands of agents do not retry at the same moment
"""

import random

from telemetry.errors import UnreachableError

FIRST_S = 0.5
MAX_S = 10.0
MAX_TOLD_S = 120.0
"""Upper limit for Retry-After, e.g. from a proxy."""


class BackOff:
    """Seconds to wait; 0 while all is well."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random()
        self._usual_s = 0.0
        self.seconds = 0.0

    def failed(self, error: UnreachableError) -> None:
        """Wait longer than the last time, and at least as long as ``error`` requires."""
        self._usual_s = min(max(2 * self._usual_s, FIRST_S), MAX_S)
        told_s = min(error.retry_after_s or 0.0, MAX_TOLD_S)
        self.seconds = max(self._usual_s, told_s) * self._chance.uniform(1, 2)

    def succeeded(self) -> None:
        self._usual_s = self.seconds = 0.0
