"""Waiting in tests: poll with a deadline, never a bare sleep."""

import threading
import time
from collections.abc import Callable


def until(
    predicate: Callable[[], object], *, seconds: float = 30.0, every: float = 0.05, what: str = "condition"
) -> None:
    """Return as soon as ``predicate()`` is true.

    Raises:
        AssertionError: it was not within ``seconds``.
    """
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} not met within {seconds} s")
        pause.wait(every)
