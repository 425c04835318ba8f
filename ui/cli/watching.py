"""`--watch`: look again and again, print what changes."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from telemetry.errors import UnreachableError

Seen = TypeVar("Seen")


def watch(
    first: Seen,
    look: Callable[[], Seen],
    verdict: Callable[[Seen], object],
    show: Callable[[Seen], None],
    every_s: float,
) -> Seen:
    """Show what ``look`` sees whenever its ``verdict`` differs from the one before; the last one, on Ctrl-C.

    Whoever does not answer for a moment is asked again.
    """
    try:
        while True:
            time.sleep(every_s)
            with suppress(UnreachableError):
                newer = look()
                if verdict(newer) != verdict(first):
                    show(newer)
                first = newer
    except KeyboardInterrupt:
        return first
