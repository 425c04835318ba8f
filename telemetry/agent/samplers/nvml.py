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
from telemetry.agent.samplers.nvml_device import Gpu, LostError, address_of, probe_gpu, text_of
from telemetry.agent.samplers.nvml_fields import NvmlLibrary
from telemetry.host_metrics import Happening
from telemetry.xid import meaning_of

MAX_EVENTS = 200
"""Largest number of events in one sample. An application in a loop can cause very many."""
_TEXTS = {
    "nvmlEventTypeDoubleBitEccError": "uncorrectable memory error",
    "nvmlEventTypeFatalPoisonError": "poisoned data was used, and the error is fatal",
    "nvmlEventTypeNonFatalPoisonError": "poisoned data was found",
    "nvmlEventTypeDramRetirementFailure": "a memory row could not be remapped",
    "nvmlEventTypeGpuUnavailableError": "the GPU is not available",
}
_SILENT = ("nvmlEventTypeDramRetirementEvent", "nvmlEventTypeGpuRecoveryAction")
"""Events that are not reported themselves. The counters show them, and are read after any event."""
_XID = "nvmlEventTypeXidCriticalError"


@dataclass(kw_only=True)
class EventSet:
    """Events of some GPUs. Always empty if the driver supports no events."""

    library: NvmlLibrary
    _handle: Any = None
    _device_of: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, library: NvmlLibrary, gpus: Sequence[Gpu]) -> "EventSet":
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

    def drain(self, at_ns: int) -> tuple[list[Event], set[int]]:
        """The events since the last call, and the addresses of GPUs with any event. Does not wait."""
        events: list[Event] = []
        addresses: set[int] = set()
        for _ in range(MAX_EVENTS if self._handle is not None else 0):
            try:
                data = self.library.nvmlEventSetWait_v2(self._handle, 0)
            except (
                self.library.NVMLError,
                AttributeError,
            ):  # no further event, or a lost GPU: its readings report that
                break
            address = address_of(data.device)
            addresses.add(address)
            if address in self._device_of and (described := self._described(data)) is not None:
                name, text = described
                events.append(Event(at_ns=at_ns, device=self._device_of[address], name=name, text=text))
        return events, addresses

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
    """A sampler of all GPUs that answer; None without a driver or without such a GPU.

    ``library`` is the module ``pynvml`` or behaves like it. One of ``samples_a_health_check`` samples reads errors.
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
        count = library.nvmlDeviceGetCount()
    except library.NVMLError:
        return []
    driver = text_of(library, "nvmlSystemGetDriverVersion")
    found = (probe_gpu(library, index, driver) for index in range(count))
    return [gpu for gpu in found if gpu is not None]


class NvmlSampler:
    name = "nvml"

    def __init__(self, library: NvmlLibrary, gpus: list[Gpu], *, samples_a_health_check: int) -> None:
        self._library = library
        self._gpus = gpus
        self._events = EventSet.of(library, gpus)
        self._samples_a_health_check = samples_a_health_check
        self._samples = 0
        self._closed = False

    def sample(self, at_ns: int) -> Sample:
        """Read every GPU. A lost GPU is reported once, and then not read again.

        Raises:
            GoneError: all GPUs are lost.
        """
        if not self._gpus:
            raise GoneError("no GPU answers any more")
        events, addresses = self._events.drain(at_ns)
        if not self._samples:
            found = (
                Event(at_ns=at_ns, device=gpu.device, name=Happening.GPU_SEEN, text=gpu.uuid) for gpu in self._gpus
            )
            events = [*found, *events]
        readings: list[Reading] = []
        checked = self._samples % self._samples_a_health_check == 0
        for gpu in tuple(self._gpus):
            try:
                readings += gpu.read(health=checked or gpu.address in addresses)
            except LostError as lost:
                events += [*self._events.drain(at_ns)[0], self._retire(gpu, at_ns, str(lost))]
        self._samples += 1
        return Sample(readings=tuple(readings), events=tuple(events))

    def _retire(self, gpu: Gpu, at_ns: int, why: str) -> Event:
        """Stop reading a lost GPU, and return the event of its loss.

        A new event set is opened for the other GPUs: reading events fails for all GPUs of a set if one is lost.
        """
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
