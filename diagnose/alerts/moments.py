"""Points in time as people write them: ``2026-11-27``, ``2026-11-27 14:00``, or ``24h`` (ago)."""

import re
from datetime import datetime

NS_PER_S = 1_000_000_000
LATEST_NS = 2**62
"""In the year 2116. A collector refuses numbers above 2^63."""
SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
FORMS = '"2026-11-27", "2026-11-27 14:00", or a duration such as "90m", "24h", "7d" or "2w"'
_DURATION = re.compile(r"([0-9]{1,5})([mhdw])")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2})?)?")


def duration_ns(text: str) -> int:
    """The length of ``90m``, ``24h``, ``7d`` or ``2w`` in nanoseconds.

    Raises:
        ValueError: it is none of these.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return int(match[1]) * SECONDS[match[2]] * NS_PER_S


def moment_ns(text: str, now_ns: int) -> int:
    """Wall clock in nanoseconds, at most :data:`LATEST_NS`. A date is in the time zone of this machine. A duration
    counts back from ``now_ns``.

    Raises:
        ValueError: it is neither a date nor a duration.
    """
    text = text.strip()
    if _MOMENT.fullmatch(text):
        return min(max(0, int(datetime.fromisoformat(text).timestamp()) * NS_PER_S), LATEST_NS)
    return max(0, now_ns - duration_ns(text))
