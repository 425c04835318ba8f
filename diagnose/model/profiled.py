"""Steps in which torch's profiler slowed some ranks, so that all ranks were slow.

    rank 5   | 8   | 9 profiled ... | 10 profiled .. | pause | 11        While the trace is written, rank 5 pauses.
    others   | 8   | 9     wait ... | 10    wait ... | 11 wait .....     So the step after the profile is left out, too.

A rank marks a profile that is over. Of a profile that still runs, the agent has stored where it began.
"""

import time
from collections.abc import Callable, Iterator

import numpy as np

from diagnose.model.operations import Ints
from diagnose.profiles import stored_profiles
from telemetry.profiles import PROFILED, Phase, profiled_steps
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Marks

MOST_MARKS = 10_000


def load_profiled(
    reader: Reader, run_id: str, attempt: int, steps: Ints, *, clock_ns: Callable[[], int] = time.time_ns
) -> Ints:
    """The steps of profiles among ``steps`` (ascending), and the step after each profile.

    ``clock_ns``: the wall clock of the collector.
    """
    is_profiled = np.zeros(len(steps), dtype=np.bool_)
    for first, last in _ranges(reader, run_id, attempt, clock_ns):
        is_profiled[np.searchsorted(steps, first) : np.searchsorted(steps, last, side="right") + 1] = True
    return steps[is_profiled]


def _ranges(reader: Reader, run_id: str, attempt: int, clock_ns: Callable[[], int]) -> Iterator[tuple[int, int]]:
    marks = reader.read(Marks(run_id=run_id, attempt=attempt, names=(PROFILED,), limit=MOST_MARKS))
    for text in marks["text"].to_pylist():
        if (steps := profiled_steps(text)) is not None:
            yield steps
    for profile in stored_profiles(reader, run_id, attempt, clock_ns=clock_ns):
        if profile.outcome is not None and profile.outcome.began_ns:
            first, last = profile.steps_profiled
            yield first, first + profile.steps - 1 if profile.phase is Phase.RUNNING else max(first, last)
