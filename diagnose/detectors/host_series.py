"""Host metrics and events over a period: growth, levels, busy processes, stops; and why ranks waited for a CPU.

A counter that did not change has no rows. A counter that falls has restarted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from diagnose.model.fleet import Fleet, HostEvent, HostSeries
from diagnose.model.gpus import total_growth
from diagnose.model.operations import Floats
from diagnose.model.view import RunView
from telemetry.host_metrics import Happening
from telemetry.thinning import REPEAT_S, WINDOW_S

MIN_EXPLAINED = 0.5
"""Of the time lost, that a strong witness must account for."""
MIN_EXPLAINED_BY_MEMORY = 0.25
"""The same of paging: it takes processor time besides."""


class Cause(StrEnum):
    """What kept a rank off its core."""

    STOPPED = "stopped"
    QUOTA = "quota"
    MEMORY = "memory"
    PROCESS = "process"
    CROWDED = "crowded"
    STEAL = "steal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """What a host says about why."""

    cause: Cause
    share: float
    """Of the time, beyond what others had of it."""
    words: str
    """Continues a sentence about the rank or host."""
    process: str = ""
    """``4711 stress-ng``; empty: none in particular."""
    strong: bool = False

    @property
    def evidence(self) -> dict[str, float | str]:
        told: dict[str, float | str] = {
            "cause": str(self.cause),
            "witnessed_share_of_time": round(float(self.share), 3),
        }
        return told | {"process": self.process} if self.process else told

    def explains(self, lost_share: float) -> bool:
        """Whether it is strong by itself, and accounts for what was lost."""
        least = MIN_EXPLAINED_BY_MEMORY if self.cause is Cause.MEMORY else MIN_EXPLAINED
        return self.strong and self.share >= least * lost_share


def next_step(witness: Witness | None) -> str:
    """What to do on the host, by cause."""
    if witness is None:
        return _NEXT_STEPS[None]
    if witness.cause is Cause.PROCESS:
        return (
            f"end pid {witness.process}, move it to other cores (taskset, a cpuset), or pin the ranks to separate cores"
        )
    if witness.cause is Cause.MEMORY and witness.process:
        return f"free memory: end or limit pid {witness.process}. Then check with vmstat 1 that swapping has stopped"
    return _NEXT_STEPS[witness.cause]


_NEXT_STEPS: dict[Cause | None, str] = {
    None: "check for other processes on its cores, a stopped or niced process and quotas (top, ps -o stat,ni,psr, "
    "cpu.stat of its cgroup). Pin the rank to separate cores",
    Cause.CROWDED: "find the processes on its cores, on the host itself and not in a container "
    "(top, ps -eo pid,psr,pcpu,comm --sort=-pcpu). Pin the rank to separate cores",
    Cause.STOPPED: "find what stops the process: a debugger, a scheduler that suspends jobs, shell job control, or "
    "a cgroup freezer",
    Cause.QUOTA: "raise or remove the CPU limit of its container (cpu.max, resources.limits.cpu), or assign whole "
    "cores",
    Cause.MEMORY: "free memory: check what uses it (ps --sort=-rss, memory.stat and memory.max of the "
    "cgroup) and check swapping (vmstat 1)",
    Cause.STEAL: "other virtual machines use the same cores: get dedicated cores, or remove the machine from the job",
}


WINDOW_NS = int(WINDOW_S * 1e9)
"""Over which agents take the mean of a level, told at its end."""

KNOWN_FOR_NS = int(1.5 * REPEAT_S * 1e9)
"""A counter that stands still is told now and then all the same: one that was not told for longer is not known."""

Place = tuple[str, str]
"""Host, device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """From one wall clock time to another, nanoseconds."""

    first_ns: int
    last_ns: int

    @property
    def length_ns(self) -> int:
        return max(1, self.last_ns - self.first_ns)

    def holds(self, at_ns: int, *, later_ns: int = 0) -> bool:
        """Whether it is within, or up to ``later_ns`` after it: events tell of the time before them."""
        return self.first_ns <= at_ns <= self.last_ns + later_ns


def period_of(view: RunView, first_row: int, last_row: int) -> Period | None:
    """The time of these steps, both included; None where nobody knows the time."""
    if view.step_start_ns is None or not len(view.step_start_ns):
        return None
    last_ns = int(view.step_start_ns[last_row] + view.step_ns[last_row])
    return Period(first_ns=int(view.step_start_ns[first_row]), last_ns=last_ns)


class Measures:
    """Series of a fleet by host and device."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._places: dict[str, Mapping[Place, HostSeries]] = {}

    def knows(self, metric: str) -> bool:
        return bool(self._fleet.of(metric))

    def growth(self, metric: str, place: Place, period: Period) -> float | None:
        """Of a counter, per nanosecond of the period; None where nothing is known."""
        one = self._series(metric, place)
        if one is None or not len(one.at_ns) or one.at_ns[0] >= period.last_ns:
            return None
        if period.first_ns - int(one.at_ns[-1]) > KNOWN_FOR_NS:
            return None
        grown = total_growth(one)
        # Relative times: nanoseconds since 1970 are too long for a float.
        at_ns = (one.at_ns - period.first_ns).astype(np.float64)
        first, last = np.interp([0.0, float(period.length_ns)], at_ns, grown)
        return float(last - first) / period.length_ns

    def levels(self, metric: str, place: Place, period: Period) -> Floats:
        """Means of all stretches that end within, and of one that begins there."""
        one = self._series(metric, place)
        if one is None:
            return np.zeros(0)
        within = (one.at_ns >= period.first_ns) & (one.at_ns <= period.last_ns + WINDOW_NS)
        return np.asarray(one.mean[within])

    def growths(self, metric: str, places: Sequence[Place], period: Period) -> Floats:
        """NaN where nothing is known."""
        told = [self.growth(metric, place, period) for place in places]
        return np.array([np.nan if one is None else one for one in told])

    def mean_levels(self, metric: str, places: Sequence[Place], period: Period) -> Floats:
        """NaN where nothing is known."""
        told = [self.levels(metric, place, period) for place in places]
        return np.array([one.mean() if len(one) else np.nan for one in told])

    def _series(self, metric: str, place: Place) -> HostSeries | None:
        if metric not in self._places:
            self._places[metric] = {(one.host, one.device): one for one in self._fleet.of(metric)}
        return self._places[metric].get(place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taker:
    """A process and how much it takes: of cores, or bytes of memory."""

    pid: str
    name: str
    amount: float
    device: str
    """``core3``; empty: several, or not of a core."""

    @property
    def process(self) -> str:
        return f"{self.pid} {self.name}"

    def words(self, host: str) -> str:
        """``pid 4711 stress-ng takes 0.90 of core 3 of gpu-03``."""
        where = f"core {self.device.removeprefix('core')}" if self.device else "the cores"
        return f"pid {self.process} uses {self.amount:.2f} of {where} of {host}"


def takers(events: Iterable[HostEvent]) -> list[Taker]:
    """Of texts such as ``4711 stress-ng (cpu) 0.9``, those that take most first; other texts tell nothing."""
    told = [taker for event in events if (taker := _taker(event)) is not None]
    return sorted(told, key=lambda taker: -taker.amount)


def _taker(event: HostEvent) -> Taker | None:
    words = event.text.split()
    try:
        amount = float(words[-1])
    except (ValueError, IndexError):
        return None
    if len(words) < 3:
        return None
    return Taker(pid=words[0], name=" ".join(words[1:-1]), amount=amount, device=event.device)


def stops_of(places: Sequence[Place], events: Iterable[HostEvent], period: Period) -> list[int]:
    """How long each stop of these ranks' processes lasted within the period, nanoseconds."""
    since: dict[Place, int] = {}
    stops: list[tuple[int, int]] = []
    for event in events:
        place = event.host, event.device
        if place not in places:
            continue
        if event.name == Happening.RANK_STOPPED:
            since.setdefault(place, event.at_ns)
        elif event.name == Happening.RANK_CONTINUED and place in since:
            stops.append((since.pop(place), event.at_ns))
    stops += [(began_ns, period.last_ns) for began_ns in since.values()]
    lasted = [min(last, period.last_ns) - max(first, period.first_ns) for first, last in stops]
    return [length for length in lasted if length > 0]
