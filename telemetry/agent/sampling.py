"""Which samplers run on this host, and how often."""

from collections.abc import Callable, Iterable, Iterator, Mapping

import pynvml

from telemetry.agent.host_watch import Paced
from telemetry.agent.samplers.host import open_host_sampler
from telemetry.agent.samplers.interface import GoneError, Sampler
from telemetry.agent.samplers.network import open_network_samplers
from telemetry.agent.samplers.nvml import open_nvml_sampler
from telemetry.agent.settings import SamplerSettings
from telemetry.printable import log


def open_samplers(settings: SamplerSettings, *, ranks: Callable[[], Mapping[int, int]]) -> list[Paced]:
    """Those that have something to read on this host. ``ranks`` tells rank -> pid of who trains here."""
    if not settings.interval_s:
        return []
    fine = _opened("traffic", lambda: open_network_samplers(fine=True)) if settings.network_s else []
    return [
        *(Paced(sampler=one, interval_s=settings.interval_s) for one in _found(ranks)),
        *(Paced(sampler=one, interval_s=settings.network_s, window_s=0) for one in fine),
    ]


def _found(ranks: Callable[[], Mapping[int, int]]) -> Iterator[Sampler]:
    yield from _opened("network", open_network_samplers)
    yield from _opened("host", lambda: [open_host_sampler(ranks=ranks)])
    yield from _opened("nvml", lambda: [one for one in (open_nvml_sampler(pynvml),) if one is not None])


def _opened(name: str, open_them: Callable[[], Iterable[Sampler]]) -> list[Sampler]:
    """What there is to read; nothing, and a line on stderr, where a driver or its library does what nobody expects."""
    try:
        return list(open_them())
    except GoneError:
        return []
    except Exception as error:  # ranks are followed whatever becomes of their host
        told = f"{type(error).__name__}: {error}"
        log(f"rankscope agent: {name} is not sampled: {told}")
        return []
