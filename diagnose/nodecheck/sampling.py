"""Repeating something for a while, and the rates that come out."""

import time
from collections.abc import Callable

MIN_SAMPLES = 3
GB = 1e9


def rates(action: Callable[[], object], amount: float, measure_s: float) -> list[float]:
    """``amount`` per second of each call: at least three calls, then until ``measure_s`` have passed.

    The first call warms up and does not count.
    """
    action()
    samples: list[float] = []
    deadline = time.perf_counter() + measure_s
    while len(samples) < MIN_SAMPLES or time.perf_counter() < deadline:
        begun = time.perf_counter()
        action()
        samples.append(amount / (time.perf_counter() - begun))
    return samples
