"""Critical events of GPUs, as NVML's event set holds them between two looks.

    driver --Xid 79 on gpu3-->  event set  --drain, no waiting-->  gpu-xid "79 the GPU fell off the bus"

Not everybody may have one: without it a sampler sees no Xids, and everything else.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from telemetry.agent.samplers.interface import Event
from telemetry.agent.samplers.nvml_device import Gpu, address_of
from telemetry.agent.samplers.nvml_fields import NvmlLibrary
from telemetry.host_metrics import Happening
from telemetry.xid import meaning_of

MAX_EVENTS = 200
"""Taken at one look: an application in a loop can make more than anybody reads."""
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
    """What came since the look before."""

    events: tuple[Event, ...] = ()
    stirred: frozenset[int] = frozenset()
    """Addresses of the GPUs that had any event: worth a look at their health."""


@dataclass(kw_only=True)
class EventSet:
    """Events of some GPUs; empty for good where there are none to be had."""

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
            if address in self._device_of and (told := self._told(data)) is not None:
                name, text = told
                events.append(Event(at_ns=at_ns, device=self._device_of[address], name=name, text=text))
        return Drained(events=tuple(events), stirred=frozenset(stirred))

    def _told(self, data: Any) -> tuple[Happening, str] | None:
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
