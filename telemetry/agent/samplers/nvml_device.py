"""One GPU through NVML: probed once, and from then on asked only for what it supports.

    probe    every field value and every function below, once; what raises NotSupported is left out for good
    pulse    every sample         throttle times and power (one call), SM clock, temperature, utilisation
    health   every tenth sample   ECC, remapped rows, PCIe, NVLink (in the same call), memory and its clock
             and after an event

That is 4 NVML calls a GPU for most samples, and 6 for a sample of its health.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from telemetry.agent.samplers.interface import Reading
from telemetry.agent.samplers.nvml_fields import (
    HEALTH,
    MW_PER_W,
    Field,
    NvmlLibrary,
    ask_fields,
    link_fields,
    pulse_fields,
)
from telemetry.host_metrics import Metric

_LEVELS = frozenset(
    {
        Metric.GPU_SM_CLOCK_MHZ,
        Metric.GPU_MEMORY_CLOCK_MHZ,
        Metric.GPU_POWER_W,
        Metric.GPU_TEMPERATURE_C,
        Metric.GPU_MEMORY_TEMPERATURE_C,
        Metric.GPU_UTILIZATION,
        Metric.GPU_MEMORY_USED_BYTES,
        Metric.GPU_MEMORY_TOTAL_BYTES,
    }
)
"""Metrics whose mean tells. All others count, or are states: between asking for nothing and for a reboot lies a reset,
for which nobody asked."""


class LostError(Exception):
    """The GPU is lost, or unusable until it is reset. The text says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One NVML function, and the metrics in its answer."""

    metrics: tuple[Metric, ...]
    ask: Callable[[NvmlLibrary, Any], tuple[float, ...]]


PULSE_CALLS = (
    Call(
        metrics=(Metric.GPU_SM_CLOCK_MHZ,),
        ask=lambda nvml, gpu: (nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),),
    ),
    Call(
        metrics=(Metric.GPU_TEMPERATURE_C,),
        ask=lambda nvml, gpu: (nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU),),
    ),
    Call(  # deprecated since CUDA 13, for drivers that know no other
        metrics=(Metric.GPU_TEMPERATURE_C,),
        ask=lambda nvml, gpu: (nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),),
    ),
    Call(
        metrics=(Metric.GPU_UTILIZATION,),
        ask=lambda nvml, gpu: (nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100.0,),
    ),
    Call(metrics=(Metric.GPU_POWER_W,), ask=lambda nvml, gpu: (nvml.nvmlDeviceGetPowerUsage(gpu) / MW_PER_W,)),
)
"""In order of preference: a call whose metrics another one tells already is not made."""
HEALTH_CALLS = (
    Call(
        metrics=(Metric.GPU_MEMORY_CLOCK_MHZ,),
        ask=lambda nvml, gpu: (nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),),
    ),
    Call(
        metrics=(Metric.GPU_MEMORY_USED_BYTES, Metric.GPU_MEMORY_TOTAL_BYTES),
        ask=lambda nvml, gpu: _memory(nvml.nvmlDeviceGetMemoryInfo(gpu)),
    ),
    Call(metrics=(Metric.GPU_ECC_CORRECTED,), ask=lambda nvml, gpu: (_ecc(nvml, gpu, "CORRECTED"),)),
    Call(metrics=(Metric.GPU_ECC_UNCORRECTED,), ask=lambda nvml, gpu: (_ecc(nvml, gpu, "UNCORRECTED"),)),
    Call(
        metrics=(
            Metric.GPU_REMAPPED_ROWS_CORRECTED,
            Metric.GPU_REMAPPED_ROWS_UNCORRECTED,
            Metric.GPU_REMAP_PENDING,
            Metric.GPU_REMAP_FAILED,
        ),
        ask=lambda nvml, gpu: tuple(nvml.nvmlDeviceGetRemappedRows(gpu)),
    ),
    Call(metrics=(Metric.GPU_PCIE_REPLAYS,), ask=lambda nvml, gpu: (nvml.nvmlDeviceGetPcieReplayCounter(gpu),)),
)


def _memory(info: Any) -> tuple[float, ...]:
    return (info.used, info.total)


def _ecc(nvml: NvmlLibrary, gpu: Any, kind: str) -> float:
    error_type = getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{kind}")
    return float(nvml.nvmlDeviceGetTotalEccErrors(gpu, error_type, nvml.NVML_VOLATILE_ECC))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is asked at a sample."""

    fields: tuple[Field, ...] = ()
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU that answers, and the calls that it supports."""

    library: NvmlLibrary
    handle: Any
    index: int
    uuid: str
    """Empty if NVML does not report it."""
    pulse: Plan
    health: Plan

    @property
    def device(self) -> str:
        return f"gpu{self.index}"

    @property
    def address(self) -> int:
        return address_of(self.handle)

    def read(self, *, health: bool) -> list[Reading]:
        """Its current values. Calls that fail this time are left out.

        Raises:
            LostError: it will never answer again.
        """
        fields = (*self.pulse.fields, *self.health.fields) if health else self.pulse.fields
        values: dict[Metric, float] = {}
        for field, value in self._fields(fields).items():
            values[field.metric] = values.get(field.metric, 0.0) + value
        for call in (*self.pulse.calls, *self.health.calls) if health else self.pulse.calls:
            values.update(_asked(self.library, self.handle, call))
        return [
            Reading(metric=metric, device=self.device, value=value, is_counter=metric not in _LEVELS)
            for metric, value in values.items()
        ]

    def _fields(self, fields: tuple[Field, ...]) -> dict[Field, float]:
        answers = _fields_or_none(self.library, self.handle, fields)
        links = sum(field.metric is Metric.GPU_NVLINK_ERRORS for field in fields)
        if links == sum(field.metric is Metric.GPU_NVLINK_ERRORS for field in answers):
            return answers
        return {  # a sum of fewer links than before would be taken for a new beginning
            field: value for field, value in answers.items() if field.metric is not Metric.GPU_NVLINK_ERRORS
        }


def address_of(handle: Any) -> int:
    """Identifies an NVML handle: two pointers to one device are not equal in Python."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def probe_gpu(library: NvmlLibrary, index: int, driver: str) -> Gpu | None:
    """The GPU, with all that it answers; None where it may not be asked (a MIG device without privilege, say)."""
    try:
        handle = library.nvmlDeviceGetHandleByIndex(index)
        pulse, health = _probe_plan(library, handle, pulse_fields(driver)), _probe_health(library, handle)
    except (library.NVMLError, LostError):
        return None
    covered = {field.metric for field in pulse.fields + health.fields}
    pulse = Plan(fields=pulse.fields, calls=_answered(library, handle, PULSE_CALLS, covered))
    health = Plan(fields=health.fields, calls=_answered(library, handle, HEALTH_CALLS, covered))
    if not any((pulse.fields, pulse.calls, health.fields, health.calls)):
        return None
    return Gpu(
        library=library,
        handle=handle,
        index=index,
        uuid=_uuid(library, handle),
        pulse=pulse,
        health=health,
    )


def _probe_plan(library: NvmlLibrary, handle: Any, fields: tuple[Field, ...]) -> Plan:
    return Plan(fields=tuple(_fields_or_none(library, handle, fields)))


def _probe_health(library: NvmlLibrary, handle: Any) -> Plan:
    """Its health fields, with the newest way to count link errors that it answers."""
    links = next((tuple(found) for way in link_fields() if (found := _fields_or_none(library, handle, way))), ())
    return Plan(fields=(*_probe_plan(library, handle, HEALTH).fields, *links))


def _fields_or_none(library: NvmlLibrary, handle: Any, fields: tuple[Field, ...]) -> dict[Field, float]:
    try:
        return ask_fields(library, handle, fields)
    except Exception as error:  # what a library of another version makes of this call costs this call alone
        _raise_if_lost(library, error)
        return {}


def _answered(library: NvmlLibrary, handle: Any, calls: tuple[Call, ...], covered: set[Metric]) -> tuple[Call, ...]:
    """The calls that report new metrics; these are added to ``covered``."""
    found: list[Call] = []
    for call in calls:
        if not covered.issuperset(call.metrics) and _asked(library, handle, call):
            found.append(call)
            covered.update(call.metrics)
    return tuple(found)


def _asked(library: NvmlLibrary, handle: Any, call: Call) -> dict[Metric, float]:
    """A call's metrics; nothing where it fails: not supported, no permission, another answer than expected."""
    try:
        return dict(zip(call.metrics, call.ask(library, handle), strict=True))
    except Exception as error:  # likewise
        _raise_if_lost(library, error)
        return {}


def _raise_if_lost(library: NvmlLibrary, error: Exception) -> None:
    value = getattr(error, "value", None)
    if value == library.NVML_ERROR_GPU_IS_LOST:
        raise LostError("the GPU is lost: it fell off the bus or does not answer") from error
    if value == library.NVML_ERROR_RESET_REQUIRED:
        raise LostError("the GPU does not work until it is reset") from error


def _uuid(library: NvmlLibrary, handle: Any) -> str:
    try:
        uuid = library.nvmlDeviceGetUUID(handle)
    except (library.NVMLError, AttributeError):
        return ""
    return uuid.decode() if isinstance(uuid, bytes) else str(uuid)
