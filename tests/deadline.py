"""Waiting in tests: poll with a deadline, never a bare sleep."""

import threading
import time
from collections.abc import Callable

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 0.2


def until(
    predicate: Callable[[], object], *, seconds: float = 30.0, every: float | None = None, what: str = "condition"
) -> None:
    """Return soon after ``predicate()`` becomes true.

    Without ``every``, the pauses become longer, because many predicates query a collector or look through all
    processes.

    Raises:
        AssertionError: it was not within ``seconds``.
    """
    deadline = time.monotonic() + seconds
    pause, pause_s = threading.Event(), FIRST_PAUSE_S if every is None else every
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} not met within {seconds} s")
        pause.wait(pause_s)
        if every is None:
            pause_s = min(1.1 * pause_s, LONGEST_PAUSE_S)
