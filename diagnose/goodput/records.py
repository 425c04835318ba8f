"""The input and the output of the ledger. Times are nanoseconds since the epoch, durations nanoseconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from diagnose.goodput.timeline import Ints, Timeline


class TimeClass(StrEnum):
    """Classes of wall time, in the order in which they are listed. ``docs/guides/goodput.md`` describes them."""

    USEFUL = "useful"
    """Steps completed for the first time, without ``checkpoint-snapshot``."""
    REPEATED = "repeated"
    """Steps that an earlier attempt had completed, and the lost part of interrupted steps."""
    CHECKPOINTING = "checkpointing"
    """``checkpoint-snapshot`` in steps, and the save at a planned stop."""
    OUTSIDE_STEPS = "outside-steps"
    """Between two steps and after the last one: evaluation, logging, teardown. In a live run also the open step."""
    DETECTING = "detecting"
    """From the end of progress to the fault decision. Without a driver: to the end of the attempt's last rank."""
    CHECKING = "checking"
    """Node checks while no attempt runs."""
    RESTARTING = "restarting"
    """From the fault decision, or the start of ranks, to the first step, and the warm-up in it. Also the start of the
    first attempt."""
    WAITING = "waiting-for-nodes"
    """Too few nodes are ready."""
    IDLE = "idle"
    """Paused, or between two attempts that no driver started."""


CLASSES = tuple(TimeClass)
CODES = {time_class: code for code, time_class in enumerate(CLASSES)}
"""Class -> number in a :class:`Timeline`."""
OF_INCIDENTS = (TimeClass.DETECTING, TimeClass.CHECKING, TimeClass.RESTARTING, TimeClass.WAITING)
"""Classes that an incident costs, besides repeated work."""


class Ending(StrEnum):
    """How the ranks of an attempt ended, from their heartbeats."""

    WELL = "well"
    """Every rank ended normally."""
    FAILED = "failed"
    """A rank ended with an error, or its process disappeared."""
    RUNNING = "running"
    """Some ranks have not ended."""
    UNKNOWN = "unknown"
    """No agent watched the attempt."""


NO_TIMES = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Steps of an attempt in ascending order: number, start of the first rank, mean duration over the ranks."""

    number: Ints = field(default_factory=lambda: NO_TIMES)
    start_ns: Ints = field(default_factory=lambda: NO_TIMES)
    duration_ns: Ints = field(default_factory=lambda: NO_TIMES)

    def __len__(self) -> int:
        return len(self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFacts:
    """What is stored about one attempt."""

    attempt: int
    started_ns: int
    """Start of its first rank."""
    heard_ns: int
    """Its newest data: a heartbeat, or the end of a step."""
    steps: StepTimes = field(default_factory=StepTimes)
    snapshots: StepTimes = field(default_factory=StepTimes)
    """``checkpoint-snapshot`` by step."""
    ending: Ending = Ending.UNKNOWN
    num_ranks: int = 0
    num_failed: int = 0
    """Ranks that ended with an error, or disappeared."""
    num_well: int = 0
    """Ranks that ended normally."""
    has_stalled: bool = False
    """Whether agents left evidence of a stall after the newest step."""
    interrupted_ns: int = 0
    """When an error first interrupted a step that was not completed. 0: unknown."""
    saved_ns: int = 0
    """When the newest checkpoint was complete. 0: unknown."""

    @property
    def has_ended(self) -> bool:
        """Whether every rank has ended."""
        return 0 < self.num_ranks <= self.num_failed + self.num_well


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverDecision:
    """A decision of the driver, as stored."""

    at_ns: int
    attempt: int
    """The attempt that ran, or the newest one. 0 also before the first attempt."""
    name: str
    reason: str
    node: str = ""
    """Empty: the whole job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """Everything that the ledger of a run is made from. ``attempts`` are in ascending order."""

    run_id: str
    attempts: tuple[AttemptFacts, ...]
    decisions: tuple[DriverDecision, ...] = ()
    """In order of time. Empty: no driver."""
    host_wall_ns: int | None = None
    """Wall time of the ranks by the clock of one host that had ranks in the first and the last attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One fault. ``cost_ns``: the time in the classes of ``OF_INCIDENTS`` until work resumed, and repeated work. The
    warm-up in the next first step is included."""

    attempt: int
    """The attempt that the fault ended."""
    cause: str
    """Name of the driver's decision. Without a driver: ``rank-failed``, ``stall`` or ``unknown``."""
    reason: str
    nodes: tuple[str, ...]
    began_ns: int
    detected_ns: int | None
    """None: not detected yet."""
    resumed_ns: int | None
    """Begin of the first step after it. None: there is none."""
    cost_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Where the wall time of a run went."""

    run_id: str
    attempts: tuple[int, ...]
    begins_ns: tuple[int, ...]
    """Begin of each attempt: the driver's decision, otherwise the start of its first rank."""
    num_steps: int
    """Completed steps of all attempts."""
    timeline: Timeline
    classes_ns: Mapping[TimeClass, int]
    """Time in each class. The sum is exactly ``wall_ns``."""
    incidents: tuple[Incident, ...]
    """In order of time."""
    unknown: tuple[str, ...]
    """Sentences that say what is not known about the run."""

    @property
    def wall_ns(self) -> int:
        """Wall time of the run."""
        return self.timeline.end_ns - self.timeline.begin_ns

    @property
    def goodput(self) -> float | None:
        """Share of useful time. None without a completed step."""
        return self.classes_ns[TimeClass.USEFUL] / self.wall_ns if self.num_steps and self.wall_ns else None
