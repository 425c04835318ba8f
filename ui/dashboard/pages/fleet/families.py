"""The panels of each family of samples, and how each metric becomes a curve."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from telemetry.host_metrics import Metric
from ui.dashboard.view_state import Family


class Reading(StrEnum):
    """How the samples of a metric become a curve."""

    LEVEL = "level"
    RATE = "rate"
    """Growth of a counter per second."""
    GROWTH = "growth"
    """Growth of a counter since the first sample."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart of a family. ``metrics``: metric -> label of its curve."""

    title: str
    unit: str
    metrics: Mapping[str, str]
    reading: Reading = Reading.LEVEL
    scale: float = 1.0
    """Converts values to ``unit``."""
    hides_zero: bool = False
    """Whether curves that are always 0 are left out."""


HELD_DOWN: Mapping[str, str] = {
    Metric.GPU_THROTTLE_POWER_NS: "power cap",
    Metric.GPU_THROTTLE_BOARD_NS: "board limit",
    Metric.GPU_THROTTLE_THERMAL_NS: "heat",
    Metric.GPU_THROTTLE_SOFTWARE_THERMAL_NS: "heat (driver)",
    Metric.GPU_THROTTLE_HARDWARE_THERMAL_NS: "heat (hardware)",
    Metric.GPU_THROTTLE_POWER_BRAKE_NS: "power brake",
    Metric.GPU_THROTTLE_SYNC_BOOST_NS: "sync boost",
}
"""Counter of throttled time -> reason."""
PERCENT, PERCENT_OF_TIME, MB, GIB = 100.0, 1e-7, 1e-6, 2.0**-30

_NETWORK = (
    Panel("Link up", "", {Metric.NIC_UP: "", Metric.RDMA_UP: ""}),
    Panel("Received", "MB/s", {Metric.NIC_RECEIVE_BYTES: "", "rdma-port_rcv_data": ""}, Reading.RATE, MB),
    Panel("Sent", "MB/s", {Metric.NIC_SEND_BYTES: "", "rdma-port_xmit_data": ""}, Reading.RATE, MB),
    Panel(
        "Link losses, errors, drops (total)",
        "",
        {
            Metric.NIC_CARRIER_DOWNS: "lost",
            Metric.NIC_ERRORS: "errors",
            Metric.NIC_DROPS: "drops",
            "rdma-link_downed": "lost",
        },
        Reading.GROWTH,
        hides_zero=True,
    ),
    Panel("TCP retransmissions", "/s", {Metric.TCP_RETRANSMITS: ""}, Reading.RATE),
)
_GPU = (
    Panel("SM clock", "MHz", {Metric.GPU_SM_CLOCK_MHZ: ""}),
    Panel("Time throttled", "%", HELD_DOWN, Reading.RATE, PERCENT_OF_TIME, hides_zero=True),
    Panel("Temperature", "°C", {Metric.GPU_TEMPERATURE_C: ""}),
    Panel("Power", "W", {Metric.GPU_POWER_W: ""}),
    Panel("Utilisation", "%", {Metric.GPU_UTILIZATION: ""}, scale=PERCENT),
    Panel("Memory used", "GiB", {Metric.GPU_MEMORY_USED_BYTES: ""}, scale=GIB),
    Panel(
        "Errors (total)",
        "",
        {
            Metric.GPU_ECC_UNCORRECTED: "ECC",
            Metric.GPU_NVLINK_ERRORS: "NVLink",
            Metric.GPU_PCIE_REPLAYS: "PCIe replays",
        },
        Reading.GROWTH,
        hides_zero=True,
    ),
)
_HOST = (
    Panel("Processor time", "%", {Metric.HOST_CPU_BUSY: "used", Metric.HOST_CPU_STEAL: "stolen"}, scale=PERCENT),
    Panel(
        "Pressure: share of the time in which at least one thread waits",
        "%",
        {
            Metric.HOST_PRESSURE_CPU_NS: "processor",
            Metric.HOST_PRESSURE_MEMORY_NS: "memory",
            Metric.HOST_PRESSURE_IO_NS: "disks",
        },
        Reading.RATE,
        PERCENT_OF_TIME,
    ),
    Panel("Running and runnable threads", "", {Metric.HOST_RUN_QUEUE: ""}),
    Panel(
        "Time that ranks wait for a core, share of the time",
        "%",
        {Metric.RANK_RUN_DELAY_NS: "", Metric.RANK_THROTTLED_NS: "by quota"},
        Reading.RATE,
        PERCENT_OF_TIME,
    ),
    Panel("Cores that ranks use", "", {Metric.RANK_CPU_NS: ""}, Reading.RATE, 1e-9),
    Panel("Memory available", "GiB", {Metric.HOST_MEMORY_AVAILABLE_BYTES: ""}, scale=GIB),
    Panel("Swap used", "MB/s", {Metric.HOST_SWAP_OUT_BYTES: ""}, Reading.RATE, MB),
)
PANELS: Mapping[Family, tuple[Panel, ...]] = {Family.NETWORK: _NETWORK, Family.GPU: _GPU, Family.HOST: _HOST}


def metrics_of(family: Family) -> tuple[str, ...]:
    """All metrics of a family, without repetition."""
    return tuple(dict.fromkeys(str(metric) for panel in PANELS[family] for metric in panel.metrics))
