"""The evidence of a finding in words and with units, for texts and pages.

excess_ms_per_step  481.929     excess per step     482 ms
share_of_steps      0.975       share of steps      97.5%
ratio               1.498       ratio               1.50x
since_ns            179...      since               2026-11-26 21:04:11
"""

import time
from collections.abc import Iterator

from diagnose.findings import Evidence

UNITS = {"ms": " ms", "s": " s", "c": " °C", "mhz": " MHz"}
"""Words in a name, and the unit that they stand for."""
INDEXES = frozenset({"pp", "steps", "stalled_steps", "since_step", "first_step", "ranks", "hottest_ranks"})
"""Names of numbers that are written without separators of thousands."""
Value = float | int | str


def evidence_in_words(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Name and value of each entry."""
    for name, value in evidence.items():
        values = value if isinstance(value, list) else [value]
        texts = [_in_words(name, each) for each in values]
        yield _label(name), (" | " if any(", " in text for text in texts) else ", ").join(texts)


def _label(name: str) -> str:
    words = [word for word in name.split("_") if word not in UNITS and word != "ns"]
    return " ".join(["number of", *words[1:]] if words[0] == "num" else words)


def _in_words(name: str, value: Value) -> str:
    if isinstance(value, str):
        return value
    words = name.split("_")
    if "share" in words:
        return f"{value:.1%}"
    if words[-1] == "ratio":
        return f"{value:.2f}x"
    if words[-1] == "ns":
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value / 1e9))
    unit = next((UNITS[word] for word in words if word in UNITS), "")
    return f"{_number(name, value)}{unit}"


def _number(name: str, value: float) -> str:
    """The number with four digits. Numbers from 1,000, and whole numbers, have no decimals."""
    if (float(value).is_integer() or abs(value) >= 1000) and abs(value) < 1e15:
        return f"{value:.0f}" if name in INDEXES else f"{value:,.0f}"
    return f"{value:.4g}"
