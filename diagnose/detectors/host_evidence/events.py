"""What events of hosts say: who takes cores or memory, and how long processes of ranks were stopped."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from diagnose.detectors.host_evidence.series import Period, Place
from diagnose.model.fleet import HostEvent
from telemetry.host_metrics import Happening


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
        return f"pid {self.process} takes {self.amount:.2f} of {where} of {host}"


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
