"""Words for people and terminals: one line, no control characters, no longer than asked, no secrets."""

from collections.abc import Iterable

SHORTEST_SECRET = 4
"""What is shorter is no secret, and would blot out half of a message."""


def one_line(text: str, limit: int = 500) -> str:
    """``text`` as one printable line of at most ``limit`` characters: line ends are spaces, the rest is escaped."""
    line = " ".join(text[: 4 * limit].split())
    return cut("".join(each if each.isprintable() else ascii(each)[1:-1] for each in line), limit)


def cut(text: str, limit: int) -> str:
    """At most ``limit`` characters of ``text``; an ellipsis says that there was more."""
    return text if len(text) <= limit else text[: limit - 1] + "\N{HORIZONTAL ELLIPSIS}"


def as_utf8(text: str) -> str:
    """``text`` as every receiver can read it: no lone surrogates, no NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def without(secrets: Iterable[str], text: str) -> str:
    """``text`` with every secret starred out, the longest first."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return text
