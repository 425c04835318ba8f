"""GPUs of a host, through NVIDIA's management library.

    open  --probe each GPU-->  sample  sample  sample ...  --the last GPU lost-->  GoneError
                                 |
                                 +-- events since the sample before (one call, without waiting)
                                 +-- 4 calls a GPU, 6 at every tenth sample and after an event (see nvml_device.py)

The library is an argument: the module ``pynvml``, or one in memory. Units are those of ``telemetry.host_metrics``.
``nvml_fields.py`` says where NVML documents its own units.

Critical events come from NVML's event set, which holds them between two samples:

    driver --Xid 79 on gpu3-->  event set  --drain, without waiting-->  gpu-xid "79 the GPU fell off the bus"

Some users may not create an event set. The sampler then reports everything except Xids.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from telemetry.agent.samplers.interface import Event, GoneError, Reading, Sample
from telemetry.agent.samplers.nvml_device import Gpu, LostError, address_of, probe_gpu
from telemetry.agent.samplers.nvml_fields import NvmlLibrary
from telemetry.host_metrics import Happening
from telemetry.xid import meaning_of

MAX_EVENTS = 200
"""Taken at one sample: an application in a loop can make more than anybody reads."""
_TEXTS = {
    "nvmlEventTypeDoubleBitEccError": "uncorrectable memory error",
    "nvmlEventTypeFatalPoisonError": "poisoned data was used, and the error is fatal",
    "nvmlEventTypeNonFatalPoisonError": "poisoned data was found",
    "nvmlEventTypeDramRetirementFailure": "a memory row could not be remapped",
    "nvmlEventTypeGpuUnavailableError": "the GPU is not available",
}
_SILENT = ("nvmlEventTypeDramRetirementEvent", "nvmlEventTypeGpuRecoveryAction")
"""Seen in the counters that are read after any event."""
_XID = "nvmlEventTypeXidCriticalError"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """Events since the last sample."""

    events: tuple[Event, ...] = ()
    stirred: frozenset[int] = frozenset()
    """Addresses of the GPUs that had any event: worth a sample at their health."""


@dataclass(kw_only=True)
class EventSet:
    """Events of some GPUs; always empty if the driver offers none."""

    library: NvmlLibrary
    _handle: Any = None
    _device_of: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, library: NvmlLibrary, gpus: Sequence[Gpu]) -> "EventSet":
        """Watch what each of them supports."""
        events = cls(library=library, _device_of={gpu.address: gpu.device for gpu in gpus})
        with suppress(library.NVMLError, AttributeError):
            events._handle = library.nvmlEventSetCreate()
            if not [gpu for gpu in gpus if events._watch(gpu)]:
                events.close()
        return events

    def _watch(self, gpu: Gpu) -> bool:
        with suppress(self.library.NVMLError, AttributeError):
            wanted = sum(getattr(self.library, name, 0) for name in (_XID, *_TEXTS, *_SILENT))
            mask = wanted & self.library.nvmlDeviceGetSupportedEventTypes(gpu.handle)
            if mask:
                self.library.nvmlDeviceRegisterEvents(gpu.handle, mask, self._handle)
                return True
        return False

    def drain(self, at_ns: int) -> Drained:
        """All that happened, without waiting."""
        events: list[Event] = []
        stirred: set[int] = set()
        for _ in range(MAX_EVENTS if self._handle is not None else 0):
            try:
                data = self.library.nvmlEventSetWait_v2(self._handle, 0)
            except (self.library.NVMLError, AttributeError):  # nothing more; or lost, which the readings tell
                break
            address = address_of(data.device)
            stirred.add(address)
            if address in self._device_of and (described := self._described(data)) is not None:
                name, text = described
                events.append(Event(at_ns=at_ns, device=self._device_of[address], name=name, text=text))
        return Drained(events=tuple(events), stirred=frozenset(stirred))

    def _described(self, data: Any) -> tuple[Happening, str] | None:
        if data.eventType == getattr(self.library, _XID, None):
            number = int(data.eventData)
            return Happening.GPU_XID, f"{number} {meaning_of(number).name}"
        for name, text in _TEXTS.items():
            if data.eventType == getattr(self.library, name, None):
                return Happening.GPU_ERROR, text
        return None

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            with suppress(self.library.NVMLError, AttributeError):
                self.library.nvmlEventSetFree(handle)


SAMPLES_A_HEALTH_CHECK = 10


def open_nvml_sampler(
    library: NvmlLibrary, *, samples_a_health_check: int = SAMPLES_A_HEALTH_CHECK
) -> "NvmlSampler | None":
    """A sampler of all GPUs that answer; None where there is no driver, or no such GPU.

    ``library`` is the module ``pynvml`` or behaves like it. Every so many samples a GPU is asked for its errors too.
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
    return NvmlSampler(library, gpus, samples_a_health_check=samples_a_health_check)


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

    def __init__(self, library: NvmlLibrary, gpus: list[Gpu], *, samples_a_health_check: int) -> None:
        self._library = library
        self._gpus = gpus
        self._events = EventSet.of(library, gpus)
        self._samples_a_health_check = samples_a_health_check
        self._samples = 0
        self._closed = False

    def sample(self, at_ns: int) -> Sample:
        """Read every GPU that is still there. A GPU that is lost is told once, and then left alone.

        Raises:
            GoneError: none is there any more.
        """
        if not self._gpus:
            raise GoneError("no GPU answers any more")
        drained = self._events.drain(at_ns)
        events = [*self._gpus_seen(at_ns), *drained.events]
        readings: list[Reading] = []
        checked = self._samples % self._samples_a_health_check == 0
        for gpu in tuple(self._gpus):
            try:
                readings += gpu.read(health=checked or gpu.address in drained.stirred)
            except LostError as lost:
                events += [*self._events.drain(at_ns).events, self._retire(gpu, at_ns, str(lost))]
        self._samples += 1
        return Sample(readings=tuple(readings), events=tuple(events))

    def _gpus_seen(self, at_ns: int) -> list[Event]:
        if self._samples:
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
