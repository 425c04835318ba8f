"""An NVML library in memory: the names, constants, errors and structures of ``pynvml`` over GPUs that a test changes.

    nvml = ScriptedNvml(h100s(8))
    nvml.gpus[3].throttle(Throttled.POWER, ns=200_000_000)
    nvml.gpus[5].report_xid(79)
    nvml.gpus[5].lose()

It fails as the real one does: NotSupported where a GPU lacks something, GpuIsLost for every call on one that is lost,
FunctionNotFound where the driver is too old, Timeout where no event waits.
"""

import ctypes
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import pynvml

H100_MEMORY_BYTES = 80 * 2**30
FIRST_HANDLE = 0x7F00_0000_0000


class Throttled(IntEnum):
    """Reason of throttling, as an index into :attr:`ScriptedGpu.throttled_ns`."""

    POWER = 0
    THERMAL = 1
    SYNC_BOOST = 2
    BOARD = 3
    SOFTWARE_THERMAL = 4
    HARDWARE_THERMAL = 5
    POWER_BRAKE = 6


@dataclass(kw_only=True)
class ScriptedGpu:
    """One GPU: its readings, its supported functions and its events."""

    index: int
    links: int = 18
    sm_clock_mhz: int = 1980
    memory_clock_mhz: int = 2619
    power_mw: int = 650_000
    temperature_c: int = 61
    memory_temperature_c: int = 70
    utilization_percent: int = 97
    memory_used_bytes: int = 70 * 2**30
    throttled_ns: list[int] = field(default_factory=lambda: [10**12, 3 * 10**9, 0, 0, 2 * 10**9, 0, 0])
    """Since the driver was loaded: not zero at the start of a test."""
    ecc: list[int] = field(default_factory=lambda: [4, 0])
    """Corrected, uncorrected."""
    remapped: list[int] = field(default_factory=lambda: [1, 0, 0, 0])
    """Rows for corrected and for uncorrected errors; pending; failed."""
    pcie_replays: int = 2
    link_replays: list[int] = field(default_factory=lambda: [0] * 18)
    recovery_action: int = 0
    lacks: frozenset[str] = frozenset()
    """Functions that raise NotSupported, and ``field 186`` for field values."""
    hidden: bool = False
    """No handle without privilege."""
    failure: int = 0
    """Error of every call: the GPU is lost, or must be reset."""
    events: deque[tuple[int, int]] = field(default_factory=deque)

    @property
    def uuid(self) -> str:
        return f"GPU-{self.index:08x}-0000-4000-8000-000000000000"

    @property
    def handle(self) -> Any:
        """A new pointer each time, as ctypes makes them."""
        return ctypes.cast(ctypes.c_void_p(FIRST_HANDLE + 0x100 * self.index), pynvml.c_nvmlDevice_t)

    def throttle(self, reason: Throttled, *, ns: int) -> None:
        """Add throttling time for a reason."""
        self.throttled_ns[reason] += ns

    def report_xid(self, number: int) -> None:
        self.report(pynvml.nvmlEventTypeXidCriticalError, number)

    def report(self, event_type: int, data: int = 0) -> None:
        self.events.append((event_type, data))

    def lose(self) -> None:
        self.failure = pynvml.NVML_ERROR_GPU_IS_LOST

    def need_reset(self) -> None:
        self.failure = pynvml.NVML_ERROR_RESET_REQUIRED

    def field_value(self, field_id: int, scope: int, renumbered_from: int) -> tuple[int, int] | None:
        """Value and type; None where it is not supported."""
        if f"field {field_id}" in self.lacks:
            return None
        long = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
        short = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
        if field_id in (74, 75, 76, 77):
            return self.throttled_ns[field_id - 74], long
        if renumbered_from <= field_id < renumbered_from + 3:
            return self.throttled_ns[4 + field_id - renumbered_from], long
        if 251 <= field_id <= 273:  # power smoothing: small numbers that are no time
            return 1, short
        if field_id == 161 and scope < self.links:
            return self.link_replays[scope], long
        if field_id in (162, 163) and scope < self.links:
            return 0, long
        found = {
            3: (self.ecc[0], long),
            4: (self.ecc[1], long),
            82: (self.memory_temperature_c, short),
            94: (self.pcie_replays, short),
            **{142 + place: (value, short) for place, value in enumerate(self.remapped)},
            186: (self.power_mw, short),
            230: (self.recovery_action, short),
        }
        return found.get(field_id)


def h100s(count: int) -> list[ScriptedGpu]:
    """Healthy GPUs with equal values."""
    return [ScriptedGpu(index=index) for index in range(count)]


class ScriptedNvml:
    """A replacement for the module ``pynvml`` over scripted GPUs. ``calls`` lists the called functions."""

    def __init__(
        self,
        gpus: Sequence[ScriptedGpu],
        *,
        driver: str = "590.48.01",
        init_error: int = 0,
        events_allowed: bool = True,
        missing: Sequence[str] = (),
    ) -> None:
        self.gpus = list(gpus)
        self.driver = driver
        self.init_error = init_error
        self.events_allowed = events_allowed
        self.missing = frozenset(missing)
        """Functions that the driver lacks."""
        self.strange_types: dict[int, int] = {}
        """Field -> a value type that the sampler does not know."""
        self.watched: dict[int, int] = {}
        """Of the newest event set: index of a GPU -> mask."""
        self.open_sets = 0
        self.inits = 0
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        """Constants, errors and structures are the real ones; a function that is not scripted is missing."""
        if name.startswith("nvml") and callable(getattr(pynvml, name, None)):
            raise AttributeError(name)
        return getattr(pynvml, name)

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name in self.missing:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    def _gpu(self, name: str, handle: Any) -> ScriptedGpu:
        self._called(name)
        address = ctypes.cast(handle, ctypes.c_void_p).value
        gpu = self.gpus[((address or 0) - FIRST_HANDLE) // 0x100]
        if gpu.failure:
            raise pynvml.NVMLError(gpu.failure)
        if name in gpu.lacks:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return gpu

    def nvmlInit(self) -> None:
        if self.init_error:
            raise pynvml.NVMLError(self.init_error)
        self.inits += 1

    def nvmlShutdown(self) -> None:
        assert self.inits, "shut down twice"
        self.inits -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        self._called("nvmlSystemGetDriverVersion")
        return self.driver

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        if self.gpus[index].hidden:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
        return self.gpus[index].handle

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        return self._gpu("nvmlDeviceGetUUID", handle).uuid

    def nvmlDeviceGetFieldValues(self, handle: Any, field_ids: Sequence[int | tuple[int, int]]) -> Any:
        gpu = self._gpu("nvmlDeviceGetFieldValues", handle)
        renumbered_from = 251 if self.driver < "580.82" else 269
        values = (pynvml.c_nvmlFieldValue_t * len(field_ids))()
        for asked, answer in zip(field_ids, values, strict=True):
            answer.fieldId, answer.scopeId = asked if isinstance(asked, tuple) else (asked, 0)
            found = gpu.field_value(answer.fieldId, answer.scopeId, renumbered_from)
            answer.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED if found is None else pynvml.NVML_SUCCESS
            if found is not None:
                answer.value.ullVal, answer.valueType = found
                answer.valueType = self.strange_types.get(answer.fieldId, answer.valueType)
        return values

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int) -> int:
        gpu = self._gpu("nvmlDeviceGetClockInfo", handle)
        return gpu.sm_clock_mhz if kind == pynvml.NVML_CLOCK_SM else gpu.memory_clock_mhz

    def nvmlDeviceGetTemperatureV(self, handle: Any, sensor: int) -> int:
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return self._gpu("nvmlDeviceGetTemperatureV", handle).temperature_c

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return self._gpu("nvmlDeviceGetTemperature", handle).temperature_c

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        gpu = self._gpu("nvmlDeviceGetUtilizationRates", handle)
        return pynvml.c_nvmlUtilization_t(gpu=gpu.utilization_percent, memory=50)

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        return self._gpu("nvmlDeviceGetPowerUsage", handle).power_mw

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any:
        used = self._gpu("nvmlDeviceGetMemoryInfo", handle).memory_used_bytes
        return pynvml.c_nvmlMemory_t(total=H100_MEMORY_BYTES, free=H100_MEMORY_BYTES - used, used=used)

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, error_type: int, counter_type: int) -> int:
        assert counter_type == pynvml.NVML_VOLATILE_ECC
        return self._gpu("nvmlDeviceGetTotalEccErrors", handle).ecc[error_type]

    def nvmlDeviceGetRemappedRows(self, handle: Any) -> tuple[int, ...]:
        return tuple(self._gpu("nvmlDeviceGetRemappedRows", handle).remapped)

    def nvmlDeviceGetPcieReplayCounter(self, handle: Any) -> int:
        return self._gpu("nvmlDeviceGetPcieReplayCounter", handle).pcie_replays

    def nvmlEventSetCreate(self) -> Any:
        self._called("nvmlEventSetCreate")
        if not self.events_allowed:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
        self.open_sets += 1
        self.watched = {}
        return pynvml.c_nvmlEventSet_t()

    def nvmlEventSetFree(self, handle: Any) -> None:
        self.open_sets -= 1

    def nvmlDeviceGetSupportedEventTypes(self, handle: Any) -> int:
        self._gpu("nvmlDeviceGetSupportedEventTypes", handle)
        return int(pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError)

    def nvmlDeviceRegisterEvents(self, handle: Any, mask: int, events: Any) -> None:
        gpu = self._gpu("nvmlDeviceRegisterEvents", handle)
        if mask & ~self.nvmlDeviceGetSupportedEventTypes(handle):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        self.watched[gpu.index] = mask

    def nvmlEventSetWait_v2(self, events: Any, timeout_ms: int) -> Any:
        """A lost GPU in the set makes every call fail once no event waits."""
        self._called("nvmlEventSetWait_v2")
        assert timeout_ms == 0, "a sample may not wait"
        watched = [self.gpus[index] for index in self.watched]
        for gpu in watched:
            if gpu.events:
                event_type, data = gpu.events.popleft()
                return pynvml.c_nvmlEventData_t(device=gpu.handle, eventType=event_type, eventData=data)
        lost = any(gpu.failure for gpu in watched)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST if lost else pynvml.NVML_ERROR_TIMEOUT)
