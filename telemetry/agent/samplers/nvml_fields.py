"""NVML's field values that are read: by number, many in one call.

    nvmlDeviceGetFieldValues(gpu, [74, 75, ..., (161, link 0), (161, link 1), ...])
        -> each with a return code and a value of its own type

Throttle counters are in nanoseconds, power in milliwatts. Source: NVIDIA's reference of the field values
(docs.nvidia.com/deploy/nvml-api/group__nvmlFieldValueEnums.html: "in ns" beside 74, 76, 269 to 271).
``DCGM_FI_DEV_CLOCKS_EVENT_REASON_*_NS`` exports them unchanged.

Three throttle counters have other numbers in newer drivers. Their old numbers now mean power smoothing, whose small
values would look like counters. Source: nvidia-ml-py, which has the version numbers of the drivers:

    driver      below 575     575 to 580.65     from 580.82 on
    ids         none          251 252 253       269 270 271
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from telemetry.host_metrics import Metric

NvmlLibrary = Any
"""The module ``pynvml``, or an object that behaves like it."""
MW_PER_W = 1000.0
MAX_LINKS = 18
"""Largest number of NVLinks of a GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field value, its metric and its divisor. ``link``: for fields of one NVLink."""

    metric: Metric
    field_id: int
    link: int = 0
    divisor: float = 1.0

    @property
    def asked(self) -> int | tuple[int, int]:
        """The field as an argument of ``nvmlDeviceGetFieldValues``."""
        return (self.field_id, self.link) if self.link else self.field_id


PULSE = (
    Field(metric=Metric.GPU_THROTTLE_POWER_NS, field_id=74),
    Field(metric=Metric.GPU_THROTTLE_THERMAL_NS, field_id=75),
    Field(metric=Metric.GPU_THROTTLE_SYNC_BOOST_NS, field_id=76),
    Field(metric=Metric.GPU_THROTTLE_BOARD_NS, field_id=77),
    Field(metric=Metric.GPU_POWER_W, field_id=186, divisor=MW_PER_W),
)
"""Fields that are read in every sample."""
HEALTH = (
    Field(metric=Metric.GPU_MEMORY_TEMPERATURE_C, field_id=82),
    Field(metric=Metric.GPU_ECC_CORRECTED, field_id=3),
    Field(metric=Metric.GPU_ECC_UNCORRECTED, field_id=4),
    Field(metric=Metric.GPU_REMAPPED_ROWS_CORRECTED, field_id=142),
    Field(metric=Metric.GPU_REMAPPED_ROWS_UNCORRECTED, field_id=143),
    Field(metric=Metric.GPU_REMAP_PENDING, field_id=144),
    Field(metric=Metric.GPU_REMAP_FAILED, field_id=145),
    Field(metric=Metric.GPU_PCIE_REPLAYS, field_id=94),
    Field(metric=Metric.GPU_RECOVERY_ACTION, field_id=230),
)
"""Fields that are read in every tenth sample, and when the GPU reports an event."""
_RENUMBERED = (
    Metric.GPU_THROTTLE_SOFTWARE_THERMAL_NS,
    Metric.GPU_THROTTLE_HARDWARE_THERMAL_NS,
    Metric.GPU_THROTTLE_POWER_BRAKE_NS,
)
_FIRST_WITH_THEM = (575, 0)
_FIRST_RENUMBERED = (580, 82)
_LINK_FAMILIES = (
    (208, 211, 215, 219),  # NVLink 5: receive errors, link integrity, recoveries, effective errors
    (161, 162, 163),  # NVLink 4: replays, recoveries, CRC
)
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""The member of NVML's union that holds a value. The index is NVML's number of the type of the value."""
_SUCCESS = 0
_LINK_TOTALS = (38, 45, 52, 59)  # NVLink 2 and 3, all links together: CRC of flits and of data, replays, recoveries


def pulse_fields(driver: str) -> tuple[Field, ...]:
    """The fields of every sample for a driver (``580.95.05``). If that is unreadable, the fields of all drivers."""
    try:
        version = tuple(int(part) for part in driver.split(".")[:2])
    except ValueError:
        return PULSE
    if version < _FIRST_WITH_THEM:
        return PULSE
    first = 251 if version < _FIRST_RENUMBERED else 269
    return (*PULSE, *(Field(metric=metric, field_id=first + place) for place, metric in enumerate(_RENUMBERED)))


def link_fields() -> tuple[tuple[Field, ...], ...]:
    """Fields that count NVLink errors, as alternatives, the newest first. The first that a GPU supports is used."""
    per_link = tuple(
        tuple(
            Field(metric=Metric.GPU_NVLINK_ERRORS, field_id=field_id, link=link)
            for field_id in family
            for link in range(MAX_LINKS)
        )
        for family in _LINK_FAMILIES
    )
    totals = tuple(Field(metric=Metric.GPU_NVLINK_ERRORS, field_id=field_id) for field_id in _LINK_TOTALS)
    return (*per_link, totals)


def ask_fields(library: NvmlLibrary, handle: Any, fields: Iterable[Field]) -> dict[Field, float]:
    """The fields with an answer of a known type, in the units of their metrics. One NVML call.

    Raises:
        library.NVMLError: the call itself failed, or the GPU is gone.
    """
    fields = tuple(fields)
    if not fields:
        return {}
    answers = library.nvmlDeviceGetFieldValues(handle, [field.asked for field in fields])
    useless = (library.NVML_ERROR_GPU_IS_LOST, library.NVML_ERROR_RESET_REQUIRED)
    found: dict[Field, float] = {}
    for field, answer in zip(fields, answers, strict=True):
        outcome = answer.nvmlReturn
        if outcome in useless:
            raise library.NVMLError(outcome)
        if outcome == _SUCCESS and 0 <= answer.valueType < len(_MEMBERS):
            found[field] = float(getattr(answer.value, _MEMBERS[answer.valueType])) / field.divisor
    return found
