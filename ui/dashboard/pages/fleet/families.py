"""The panels of each family of samples, and how each metric becomes a curve."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from telemetry.host_metrics import Metric
from ui.dashboard.view_state import Family


class Reading(StrEnum):
    """How the numbers of a metric become a curve."""

    LEVEL = "level"
    RATE = "rate"
    """Growth of a counter a second."""
    GROWTH = "growth"
    """Growth of a counter since the first look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One chart of a family. ``metrics``: metric -> what it is called where a panel has several."""

    title: str
    unit: str
    metrics: Mapping[str, str]
    reading: Reading = Reading.LEVEL
    scale: float = 1.0
    """By which a value is multiplied to be of ``unit``."""
    hides_zero: bool = False
    """Leaves out what stays at zero: errors that nobody made."""


HELD_DOWN: Mapping[str, str] = {
    Metric.GPU_THROTTLE_POWER_NS: "power cap",
    Metric.GPU_THROTTLE_BOARD_NS: "board limit",
    Metric.GPU_THROTTLE_THERMAL_NS: "thermal",
    Metric.GPU_THROTTLE_SOFTWARE_THERMAL_NS: "thermal (driver)",
    Metric.GPU_THROTTLE_HARDWARE_THERMAL_NS: "thermal (hardware)",
    Metric.GPU_THROTTLE_POWER_BRAKE_NS: "power brake",
    Metric.GPU_THROTTLE_SYNC_BOOST_NS: "sync boost",
}
"""Counter of the time for which clocks are held down -> why."""
PERCENT, PERCENT_OF_TIME, MB, GIB = 100.0, 1e-7, 1e-6, 2.0**-30

_NETWORK = (
    Panel(title="Link up", unit="", metrics={Metric.NIC_UP: "", Metric.RDMA_UP: ""}),
    Panel(
        title="Received",
        unit="MB/s",
        metrics={Metric.NIC_RECEIVE_BYTES: "", "rdma-port_rcv_data": ""},
        reading=Reading.RATE,
        scale=MB,
    ),
    Panel(
        title="Sent",
        unit="MB/s",
        metrics={Metric.NIC_SEND_BYTES: "", "rdma-port_xmit_data": ""},
        reading=Reading.RATE,
        scale=MB,
    ),
    Panel(
        title="Link losses, errors, drops (total)",
        unit="",
        metrics={
            Metric.NIC_CARRIER_DOWNS: "lost",
            Metric.NIC_ERRORS: "errors",
            Metric.NIC_DROPS: "drops",
            "rdma-link_downed": "lost",
        },
        reading=Reading.GROWTH,
        hides_zero=True,
    ),
    Panel(title="TCP retransmissions", unit="/s", metrics={Metric.TCP_RETRANSMITS: ""}, reading=Reading.RATE),
)
_GPU = (
    Panel(title="SM clock", unit="MHz", metrics={Metric.GPU_SM_CLOCK_MHZ: ""}),
    Panel(
        title="GPU throttling, share of the time",
        unit="%",
        metrics=HELD_DOWN,
        reading=Reading.RATE,
        scale=PERCENT_OF_TIME,
        hides_zero=True,
    ),
    Panel(title="Temperature", unit="°C", metrics={Metric.GPU_TEMPERATURE_C: ""}),
    Panel(title="Power", unit="W", metrics={Metric.GPU_POWER_W: ""}),
    Panel(title="Utilisation", unit="%", metrics={Metric.GPU_UTILIZATION: ""}, scale=PERCENT),
    Panel(title="Memory used", unit="GiB", metrics={Metric.GPU_MEMORY_USED_BYTES: ""}, scale=GIB),
    Panel(
        title="Errors (total)",
        unit="",
        metrics={
            Metric.GPU_ECC_UNCORRECTED: "ECC",
            Metric.GPU_NVLINK_ERRORS: "NVLink",
            Metric.GPU_PCIE_REPLAYS: "PCIe replays",
        },
        reading=Reading.GROWTH,
        hides_zero=True,
    ),
)
_HOST = (
    Panel(
        title="Processor time",
        unit="%",
        metrics={Metric.HOST_CPU_BUSY: "used", Metric.HOST_CPU_STEAL: "stolen"},
        scale=PERCENT,
    ),
    Panel(
        title="Pressure: share of the time in which a thread waits",
        unit="%",
        metrics={
            Metric.HOST_PRESSURE_CPU_NS: "processor",
            Metric.HOST_PRESSURE_MEMORY_NS: "memory",
            Metric.HOST_PRESSURE_IO_NS: "disks",
        },
        reading=Reading.RATE,
        scale=PERCENT_OF_TIME,
    ),
    Panel(title="Running and runnable threads", unit="", metrics={Metric.HOST_RUN_QUEUE: ""}),
    Panel(
        title="Time that ranks wait for a core, share of the time",
        unit="%",
        metrics={Metric.RANK_RUN_DELAY_NS: "", Metric.RANK_THROTTLED_NS: "by quota"},
        reading=Reading.RATE,
        scale=PERCENT_OF_TIME,
    ),
    Panel(
        title="Cores that ranks use",
        unit="",
        metrics={Metric.RANK_CPU_NS: ""},
        reading=Reading.RATE,
        scale=1e-9,
    ),
    Panel(title="Memory available", unit="GiB", metrics={Metric.HOST_MEMORY_AVAILABLE_BYTES: ""}, scale=GIB),
    Panel(
        title="Swap used",
        unit="MB/s",
        metrics={Metric.HOST_SWAP_OUT_BYTES: ""},
        reading=Reading.RATE,
        scale=MB,
    ),
)
PANELS: Mapping[Family, tuple[Panel, ...]] = {Family.NETWORK: _NETWORK, Family.GPU: _GPU, Family.HOST: _HOST}


def metrics_of(family: Family) -> tuple[str, ...]:
    """All that a family shows, each once."""
    return tuple(dict.fromkeys(str(metric) for panel in PANELS[family] for metric in panel.metrics))
