"""Makes untrusted text safe for a terminal or a log.

Names, log lines and error texts come from jobs. An escape sequence in them would move the cursor, a line end would
forge a line, and a bidirectional control would reverse what follows. Each such character is escaped:

    escape, line end, U+202E   ->   \x1b  \n  \u202e
"""

import sys
from contextlib import suppress


def printable(text: str) -> str:
    """``text`` as one line: every character that is not printable is written as its escape."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def printable_lines(text: str) -> str:
    """:func:`printable` for each line of a text: its line ends stay."""
    return "\n".join(map(printable, text.split("\n")))


def one_line(text: str, limit: int = 500) -> str:
    """``text`` as one printable line of at most ``limit`` characters: white space becomes single spaces."""
    return cut(printable(" ".join(text[: 4 * limit].split())), limit)


def cut(text: str, limit: int) -> str:
    """At most ``limit`` characters of ``text``; a cut text ends in an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "\N{HORIZONTAL ELLIPSIS}"


def log(text: str) -> None:
    """Write ``text`` to standard error as one line: a message and its hint are joined.

    Never raises: the line is lost if standard error is closed, or is a file on a full disk.
    """
    lines = (line.strip() for line in text.splitlines())
    write_lines("; ".join(filter(None, lines)))


def write_lines(text: str) -> None:
    """Write ``text`` to standard error: a traceback, or a message and its hint. Never raises, as :func:`log`."""
    if sys.stderr is None:  # print() would write to standard output
        return
    with suppress(Exception):  # a program may have replaced sys.stderr
        print(printable_lines(text.rstrip("\n")), file=sys.stderr, flush=True)
