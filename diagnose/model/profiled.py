"""Steps in which torch's profiler slowed some ranks, so that all ranks were slow.

    rank 5   | 8   | 9 profiled ... | 10 profiled .. | pause | 11        While the trace is written, rank 5 pauses.
    others   | 8   | 9     wait ... | 10    wait ... | 11 wait .....     So the step after the profile is left out, too.

A rank records a mark when a profile is over. For a profile that still runs, the agent has stored where it began.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from diagnose.model.operations import Ints
from diagnose.profiles import StoredProfile, stored_profiles
from telemetry.profiles import PROFILED, Phase, profiled_steps
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Marks

MOST_MARKS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """The profiles of an attempt, and the steps that they slowed."""

    steps: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    profiles: tuple[StoredProfile, ...] = ()
    """The newest first."""


def load_profiled(
    reader: Reader, run_id: str, attempt: int, steps: Ints, *, clock_ns: Callable[[], int] = time.time_ns
) -> Profiled:
    """The profiles of an attempt, and which of ``steps`` (ascending) they slowed: those of profiles, and the step after
    each profile.

    ``clock_ns``: the wall clock of the collector.
    """
    marks = reader.read(Marks(run_id=run_id, attempt=attempt, names=(PROFILED,), limit=MOST_MARKS))
    profiles = stored_profiles(reader, run_id, attempt, clock_ns=clock_ns)
    is_profiled = np.zeros(len(steps), dtype=np.bool_)
    for first, last in _ranges(marks["text"].to_pylist(), profiles):
        is_profiled[np.searchsorted(steps, first) : np.searchsorted(steps, last, side="right") + 1] = True
    return Profiled(steps=steps[is_profiled], profiles=tuple(profiles))


def _ranges(marks: Iterable[str], profiles: Iterable[StoredProfile]) -> Iterator[tuple[int, int]]:
    for text in marks:
        if (steps := profiled_steps(text)) is not None:
            yield steps
    for profile in profiles:
        if profile.outcome is not None and profile.outcome.began_ns:
            first, last = profile.steps_profiled
            yield first, first + profile.steps - 1 if profile.phase is Phase.RUNNING else max(first, last)
