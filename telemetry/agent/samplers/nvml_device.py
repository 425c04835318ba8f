"""One GPU through NVML. It is probed once. Later samples query only what it supports.

    probe    every field value and every function below, once; what raises NotSupported is not queried again
    pulse    every sample         throttle times and power (one call), SM clock, temperature, utilisation
    health   every tenth sample   ECC, remapped rows, PCIe, NVLink (in the same call), memory and its clock
             and after an event

That is 4 NVML calls a GPU for most samples, and 6 for a sample of its health.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeVar

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
"""Metrics of which the mean is sent. Other metrics are counters or states, whose mean has no meaning."""


K = TypeVar("K", Field, Metric)


class LostError(Exception):
    """The GPU is lost, or unusable until it is reset. The message says which of the two."""


@dataclass(frozen=True, slots=True)
class Call:
    """One NVML function, and the metrics in its answer."""

    metrics: tuple[Metric, ...]
    ask: Callable[[NvmlLibrary, Any], tuple[float, ...]]


PULSE_CALLS = (
    Call((Metric.GPU_SM_CLOCK_MHZ,), lambda nvml, gpu: (nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),)),
    Call(
        (Metric.GPU_TEMPERATURE_C,),
        lambda nvml, gpu: (nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU),),
    ),
    Call(  # deprecated since CUDA 13, for drivers without the function above
        (Metric.GPU_TEMPERATURE_C,),
        lambda nvml, gpu: (nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),),
    ),
    Call((Metric.GPU_UTILIZATION,), lambda nvml, gpu: (nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100.0,)),
    Call((Metric.GPU_POWER_W,), lambda nvml, gpu: (nvml.nvmlDeviceGetPowerUsage(gpu) / MW_PER_W,)),
)
"""Calls in order of preference. A call that gives no new metric is not made."""
HEALTH_CALLS = (
    Call((Metric.GPU_MEMORY_CLOCK_MHZ,), lambda nvml, gpu: (nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),)),
    Call(
        (Metric.GPU_MEMORY_USED_BYTES, Metric.GPU_MEMORY_TOTAL_BYTES),
        lambda nvml, gpu: attrgetter("used", "total")(nvml.nvmlDeviceGetMemoryInfo(gpu)),
    ),
    Call((Metric.GPU_ECC_CORRECTED,), lambda nvml, gpu: (_ecc(nvml, gpu, "CORRECTED"),)),
    Call((Metric.GPU_ECC_UNCORRECTED,), lambda nvml, gpu: (_ecc(nvml, gpu, "UNCORRECTED"),)),
    Call(
        (
            *(Metric.GPU_REMAPPED_ROWS_CORRECTED, Metric.GPU_REMAPPED_ROWS_UNCORRECTED),
            *(Metric.GPU_REMAP_PENDING, Metric.GPU_REMAP_FAILED),
        ),
        lambda nvml, gpu: tuple(nvml.nvmlDeviceGetRemappedRows(gpu)),
    ),
    Call((Metric.GPU_PCIE_REPLAYS,), lambda nvml, gpu: (nvml.nvmlDeviceGetPcieReplayCounter(gpu),)),
)


def _ecc(nvml: NvmlLibrary, gpu: Any, kind: str) -> float:
    error_type = getattr(nvml, f"NVML_MEMORY_ERROR_TYPE_{kind}")
    return float(nvml.nvmlDeviceGetTotalEccErrors(gpu, error_type, nvml.NVML_VOLATILE_ECC))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The queries of a sample."""

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
        """The current values of the GPU, without those of failed calls.

        Raises:
            LostError: the GPU is lost, or unusable until it is reset.
        """
        fields = (*self.pulse.fields, *self.health.fields) if health else self.pulse.fields
        values: dict[Metric, float] = {}
        for field, value in self._fields(fields).items():
            values[field.metric] = values.get(field.metric, 0.0) + value
        for call in (*self.pulse.calls, *self.health.calls) if health else self.pulse.calls:
            values.update(_metrics_of(self.library, self.handle, call))
        return [
            Reading(metric=metric, device=self.device, value=value, is_counter=metric not in _LEVELS)
            for metric, value in values.items()
        ]

    def _fields(self, fields: tuple[Field, ...]) -> dict[Field, float]:
        answers = _fields_or_none(self.library, self.handle, fields)
        links = sum(field.metric is Metric.GPU_NVLINK_ERRORS for field in fields)
        if links == sum(field.metric is Metric.GPU_NVLINK_ERRORS for field in answers):
            return answers
        return {  # the sum of fewer links would look like a reset
            field: value for field, value in answers.items() if field.metric is not Metric.GPU_NVLINK_ERRORS
        }


def address_of(handle: Any) -> int:
    """Identifies an NVML handle: two pointers to one device are not equal in Python."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def probe_gpu(library: NvmlLibrary, index: int, driver: str) -> Gpu | None:
    """The GPU and the queries that it supports; None if it refuses them (e.g. a MIG device without privilege)."""
    try:
        handle = library.nvmlDeviceGetHandleByIndex(index)
        pulse_found = tuple(_fields_or_none(library, handle, pulse_fields(driver)))
        # The newest way to count link errors that the GPU supports.
        links = next((tuple(found) for way in link_fields() if (found := _fields_or_none(library, handle, way))), ())
        health_found = (*_fields_or_none(library, handle, HEALTH), *links)
    except (library.NVMLError, LostError):
        return None
    covered = {field.metric for field in pulse_found + health_found}
    pulse = Plan(fields=pulse_found, calls=_answered(library, handle, PULSE_CALLS, covered))
    health = Plan(fields=health_found, calls=_answered(library, handle, HEALTH_CALLS, covered))
    if not any((pulse.fields, pulse.calls, health.fields, health.calls)):
        return None
    uuid = text_of(library, "nvmlDeviceGetUUID", handle)
    return Gpu(library=library, handle=handle, index=index, uuid=uuid, pulse=pulse, health=health)


def _fields_or_none(library: NvmlLibrary, handle: Any, fields: tuple[Field, ...]) -> dict[Field, float]:
    return _or_empty(library, lambda: ask_fields(library, handle, fields))


def _metrics_of(library: NvmlLibrary, handle: Any, call: Call) -> dict[Metric, float]:
    return _or_empty(library, lambda: dict(zip(call.metrics, call.ask(library, handle), strict=True)))


def _or_empty(library: NvmlLibrary, ask: Callable[[], dict[K, float]]) -> dict[K, float]:
    """The result of ``ask``. Empty if it fails: not supported, no permission, or an answer of another version.

    Raises:
        LostError: the GPU is lost.
    """
    try:
        return ask()
    except Exception as error:  # a library of another version may raise anything: only this call fails
        value = getattr(error, "value", None)
        if value == library.NVML_ERROR_GPU_IS_LOST:
            raise LostError("the GPU is lost: it fell off the bus or does not answer") from error
        if value == library.NVML_ERROR_RESET_REQUIRED:
            raise LostError("the GPU does not work until it is reset") from error
        return {}


def _answered(library: NvmlLibrary, handle: Any, calls: tuple[Call, ...], covered: set[Metric]) -> tuple[Call, ...]:
    """The calls that report new metrics; these are added to ``covered``."""
    found: list[Call] = []
    for call in calls:
        if not covered.issuperset(call.metrics) and _metrics_of(library, handle, call):
            found.append(call)
            covered.update(call.metrics)
    return tuple(found)


def text_of(library: NvmlLibrary, function: str, *arguments: Any) -> str:
    """The text that an NVML function returns; empty if it fails."""
    try:
        text = getattr(library, function)(*arguments)
    except (library.NVMLError, AttributeError):
        return ""
    return text.decode() if isinstance(text, bytes) else str(text)
