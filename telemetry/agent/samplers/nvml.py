"""GPUs of a host, by NVIDIA's management library.

    open  --probe each GPU-->  look  look  look ...  --the last one lost-->  GoneError
                                |
                                +-- events since the look before (one call, no waiting)
                                +-- 4 calls a GPU, 6 at every tenth look and after an event (see nvml_device.py)

The library is an argument: the module ``pynvml``, or one in memory. Units are those of ``telemetry.host_metrics``;
where NVML says its own stands in ``nvml_fields.py``.
"""

from contextlib import suppress

from telemetry.agent.samplers.interface import Event, GoneError, Look, Reading
from telemetry.agent.samplers.nvml_device import Gpu, LostError, probe_gpu
from telemetry.agent.samplers.nvml_events import EventSet
from telemetry.agent.samplers.nvml_fields import NvmlLibrary
from telemetry.host_metrics import Happening

LOOKS_A_HEALTH_CHECK = 10


def open_nvml_sampler(
    library: NvmlLibrary, *, looks_a_health_check: int = LOOKS_A_HEALTH_CHECK
) -> "NvmlSampler | None":
    """A sampler of all GPUs that answer; None where there is no driver, or no such GPU.

    ``library`` is the module ``pynvml`` or behaves like it. Every so many looks a GPU is asked for its errors too.
    """
    try:
        library.nvmlInit()
    except library.NVMLError:
        return None
    gpus = _probe_all(library)
    if not gpus:
        with suppress(library.NVMLError):
            library.nvmlShutdown()
        return None
    return NvmlSampler(library, gpus, looks_a_health_check=looks_a_health_check)


def _probe_all(library: NvmlLibrary) -> list[Gpu]:
    try:
        count, driver = library.nvmlDeviceGetCount(), _driver(library)
    except library.NVMLError:
        return []
    found = (probe_gpu(library, index, driver) for index in range(count))
    return [gpu for gpu in found if gpu is not None]


def _driver(library: NvmlLibrary) -> str:
    try:
        version = library.nvmlSystemGetDriverVersion()
    except (library.NVMLError, AttributeError):
        return ""
    return version.decode() if isinstance(version, bytes) else str(version)


class NvmlSampler:
    """See ``telemetry.agent.samplers.interface.Sampler``."""

    name = "nvml"

    def __init__(self, library: NvmlLibrary, gpus: list[Gpu], *, looks_a_health_check: int) -> None:
        self._library = library
        self._gpus = gpus
        self._events = EventSet.of(library, gpus)
        self._looks_a_health_check = looks_a_health_check
        self._looks = 0
        self._closed = False

    def look(self, at_ns: int) -> Look:
        """Read every GPU that is still there. A GPU that is lost is told once, and then left alone.

        Raises:
            GoneError: none is there any more.
        """
        if not self._gpus:
            raise GoneError("no GPU answers any more")
        drained = self._events.drain(at_ns)
        events = [*self._seen(at_ns), *drained.events]
        readings: list[Reading] = []
        checked = self._looks % self._looks_a_health_check == 0
        for gpu in tuple(self._gpus):
            try:
                readings += gpu.read(health=checked or gpu.address in drained.stirred)
            except LostError as lost:
                events += [*self._events.drain(at_ns).events, self._retire(gpu, at_ns, str(lost))]
        self._looks += 1
        return Look(readings=tuple(readings), events=tuple(events))

    def _seen(self, at_ns: int) -> list[Event]:
        if self._looks:
            return []
        return [Event(at_ns=at_ns, device=gpu.device, name=Happening.GPU_SEEN, text=gpu.uuid) for gpu in self._gpus]

    def _retire(self, gpu: Gpu, at_ns: int, why: str) -> Event:
        """Watch the others alone: waiting for events fails for all while one is lost."""
        self._gpus.remove(gpu)
        self._events.close()
        self._events = EventSet.of(self._library, self._gpus)
        return Event(at_ns=at_ns, device=gpu.device, name=Happening.DEVICE_GONE, text=why)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._events.close()
        with suppress(self._library.NVMLError):
            self._library.nvmlShutdown()
