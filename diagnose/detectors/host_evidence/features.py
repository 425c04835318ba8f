"""What machines are compared by, and what counts as a difference: bounds are ours."""

from dataclasses import dataclass

from telemetry.host_metrics import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One metric of hosts."""

    metric: Metric
    unit: str
    counter: bool = False
    of_devices: str = "sum"
    least: float
    """A difference below it is none, whatever the others do."""
    least_share: float = 0.2
    """The same as a share of what the others have."""


FEATURES = (
    Feature(metric=Metric.NIC_SEND_BYTES, unit="bytes/s", counter=True, least=1e6),
    Feature(metric=Metric.NIC_RECEIVE_BYTES, unit="bytes/s", counter=True, least=1e6),
    Feature(metric=Metric.HOST_CPU_BUSY, unit="of all cores", least=0.1),
    Feature(metric=Metric.GPU_UTILIZATION, unit="(lowest of its GPUs)", of_devices="lowest", least=0.1),
    Feature(metric=Metric.GPU_POWER_W, unit="W (lowest of its GPUs)", of_devices="lowest", least=30.0),
    Feature(
        metric=Metric.GPU_SM_CLOCK_MHZ,
        unit="MHz (lowest of its GPUs)",
        of_devices="lowest",
        least=50.0,
        least_share=0.05,
    ),
    Feature(metric=Metric.TCP_RETRANSMITS, unit="segments/s", counter=True, least=20.0),
    Feature(metric=Metric.NIC_ERRORS, unit="errors/s", counter=True, least=5.0),
    Feature(metric=Metric.NIC_DROPS, unit="drops/s", counter=True, least=50.0),
    Feature(metric=Metric.GPU_NVLINK_ERRORS, unit="errors/s", counter=True, least=5.0),
    Feature(metric=Metric.GPU_PCIE_REPLAYS, unit="replays/s", counter=True, least=1.0),
    Feature(metric=Metric.HOST_PRESSURE_MEMORY_NS, unit="ns/s", counter=True, least=5e7),
    Feature(metric=Metric.HOST_PRESSURE_IO_NS, unit="ns/s", counter=True, least=1e8),
    Feature(metric=Metric.HOST_PRESSURE_CPU_NS, unit="ns/s", counter=True, least=1e8),
    Feature(metric=Metric.HOST_RUN_QUEUE, unit="threads", least=4.0),
    Feature(metric=Metric.HOST_CPU_STEAL, unit="of all cores", least=0.05),
    Feature(metric=Metric.HOST_SWAP_OUT_BYTES, unit="bytes/s", counter=True, least=1e6),
    Feature(metric=Metric.HOST_DISK_BUSY_NS, unit="ns/s", counter=True, of_devices="highest", least=2e8),
    Feature(metric=Metric.GPU_MEMORY_USED_BYTES, unit="bytes (lowest of its GPUs)", of_devices="lowest", least=2e9),
    Feature(metric=Metric.HOST_MEMORY_AVAILABLE_BYTES, unit="bytes", least=8e9),
)
"""Those first that move first and move the most when a machine is sick."""
