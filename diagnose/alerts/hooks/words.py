"""Words for receivers: text that each of them can read, without secrets. One line of it: ``telemetry.printable``."""

from collections.abc import Iterable

SHORTEST_SECRET = 4
"""What is shorter is no secret, and would blot out half of a message."""


def as_utf8(text: str) -> str:
    """``text`` as every receiver can read it: no lone surrogates, no NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def without(secrets: Iterable[str], text: str) -> str:
    """``text`` with every secret starred out, the longest first."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return text
