"""Which samplers run on this host, and how often."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from telemetry.agent.host_watch import Paced
from telemetry.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSettings:
    """How often the host is looked at.

    Raises:
        UsageError: values that cannot work.
    """

    interval_s: float = 1.0
    """Between two looks; 0: the host is not sampled."""
    network_s: float = 0.0
    """Bytes of the network cards in windows of this length, each shipped: 0.01 shows bursts; 0: not so."""

    def __post_init__(self) -> None:
        if self.interval_s < 0 or (self.interval_s and self.interval_s < 0.1):
            raise UsageError(
                f"a sampling interval of {self.interval_s:g} s", hint="0.1 or longer; 0 samples nothing at all"
            )
        if self.network_s and not 0.01 <= self.network_s <= 10:
            raise UsageError(f"network windows of {self.network_s:g} s", hint="0.01 to 10, or 0 for none")


def open_samplers(settings: SamplerSettings, *, ranks: Callable[[], Mapping[int, int]]) -> list[Paced]:
    """Those that have something to read on this host. ``ranks`` tells rank -> pid of who trains here."""
    return list(_opened(settings, ranks)) if settings.interval_s else []


def _opened(settings: SamplerSettings, ranks: Callable[[], Mapping[int, int]]) -> Iterator[Paced]:
    yield from ()
