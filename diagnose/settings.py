"""Thresholds that users can set. All others follow from the noise of the run.

RANKSCOPE_FLAPS            3        number of link losses that make a finding instead of a mark
RANKSCOPE_FLAPS_WITHIN_S   43200    time in which they are counted
RANKSCOPE_LONG_FLAP_S      25       a single flap of this length is a finding
RANKSCOPE_LONGEST_FLAP_S   60       a link that is down for longer is not a flap but a cut link
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields

from telemetry.errors import UsageError

PREFIX = "RANKSCOPE_"


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSettings:
    """Thresholds for link losses. The defaults are gpud's definition of a port flap: 25 s, three times in 12 hours.

    Flaps shorter than 25 s are counted too, because those of MegaScale last several seconds.

    Raises:
        UsageError: a value below zero, or flaps below one.
    """

    flaps: int = 3
    flaps_within_s: float = 12 * 3600.0
    long_flap_s: float = 25.0
    longest_flap_s: float = 60.0

    def __post_init__(self) -> None:
        wrong = [field.name for field in fields(self) if not 0 <= getattr(self, field.name) < math.inf]
        if wrong or self.flaps < 1:
            name = wrong[0] if wrong else "flaps"
            raise UsageError(
                f"{PREFIX}{name.upper()} is {getattr(self, name)}", hint="use at least 1 flap, and at least 0 seconds"
            )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "DetectorSettings":
        """The settings in environment variables, and defaults for the others.

        Raises:
            UsageError: a variable is not a number, or is out of range.
        """
        given: dict[str, float] = {}
        for field in fields(cls):
            name = PREFIX + field.name.upper()
            if text := environment.get(name, ""):
                try:
                    given[field.name] = int(text) if field.name == "flaps" else float(text)
                except ValueError:
                    raise UsageError(f"{name} is {text!r}", hint=f"a number, such as {field.default}") from None
        return cls(**given)  # type: ignore[arg-type]


USUAL = DetectorSettings()
