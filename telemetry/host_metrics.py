"""Names of the samplers' metrics and events, for samplers, stores and detectors. A name is never changed.

Units are part of the names. Counters start at any value and grow. A sampler unwraps counters that overflow, so a value
that falls means that the device was reset.
"""

from enum import StrEnum

WINDOW_S = 5.0
"""A level is stored as its mean over this time."""
REPEAT_S = 60.0
"""A counter that does not change is stored this often."""


class Metric(StrEnum):
    """Numbers. Every counter file of an RDMA port is also a metric: ``rdma-<file>``."""

    # Ethernet interfaces: device is the interface.
    NIC_UP = "nic-up"
    """1 if it has a carrier and is not taken down by its owner, else 0."""
    NIC_CARRIER_DOWNS = "nic-carrier-downs"
    """Counter of the kernel: losses of the carrier."""
    NIC_CARRIER_UPS = "nic-carrier-ups"
    NIC_SPEED_MBPS = "nic-speed-mbps"
    NIC_RECEIVE_BYTES = "nic-receive-bytes"
    NIC_SEND_BYTES = "nic-send-bytes"
    NIC_ERRORS = "nic-errors"
    """Counter: receive and send errors together."""
    NIC_DROPS = "nic-drops"
    TCP_RETRANSMITS = "tcp-retransmits"
    """Counter of the host (device empty): segments sent again."""

    # RDMA ports: device is ``mlx5_0/1``.
    RDMA_UP = "rdma-up"
    RDMA_RATE_GBPS = "rdma-rate-gbps"

    # GPUs: device is ``gpu0`` and so on, as NVML counts them.
    GPU_SM_CLOCK_MHZ = "gpu-sm-clock-mhz"
    GPU_MEMORY_CLOCK_MHZ = "gpu-memory-clock-mhz"
    GPU_THROTTLE_POWER_NS = "gpu-throttle-power-ns"
    """Counters of the time in which clocks were reduced, by reason."""
    GPU_THROTTLE_THERMAL_NS = "gpu-throttle-thermal-ns"
    GPU_THROTTLE_SYNC_BOOST_NS = "gpu-throttle-sync-boost-ns"
    GPU_THROTTLE_BOARD_NS = "gpu-throttle-board-ns"
    GPU_THROTTLE_SOFTWARE_THERMAL_NS = "gpu-throttle-software-thermal-ns"
    GPU_THROTTLE_HARDWARE_THERMAL_NS = "gpu-throttle-hardware-thermal-ns"
    GPU_THROTTLE_POWER_BRAKE_NS = "gpu-throttle-power-brake-ns"
    GPU_POWER_W = "gpu-power-w"
    GPU_TEMPERATURE_C = "gpu-temperature-c"
    GPU_MEMORY_TEMPERATURE_C = "gpu-memory-temperature-c"
    GPU_UTILIZATION = "gpu-utilization"
    """0 to 1."""
    GPU_MEMORY_USED_BYTES = "gpu-memory-used-bytes"
    GPU_MEMORY_TOTAL_BYTES = "gpu-memory-total-bytes"
    GPU_ECC_CORRECTED = "gpu-ecc-corrected"
    """Counters of memory errors since the driver was loaded."""
    GPU_ECC_UNCORRECTED = "gpu-ecc-uncorrected"
    GPU_REMAPPED_ROWS_CORRECTED = "gpu-remapped-rows-corrected"
    GPU_REMAPPED_ROWS_UNCORRECTED = "gpu-remapped-rows-uncorrected"
    GPU_REMAP_PENDING = "gpu-remap-pending"
    GPU_REMAP_FAILED = "gpu-remap-failed"
    GPU_RECOVERY_ACTION = "gpu-recovery-action"
    """The action that the driver recommends, as NVML numbers it: 0 none, 1 reset, 2 and 7 reboot, 4 drain first ..."""
    GPU_PCIE_REPLAYS = "gpu-pcie-replays"
    GPU_NVLINK_ERRORS = "gpu-nvlink-errors"
    """Counter: CRC, replay and recovery errors of all links together."""

    # The host: device is empty, ``core3``, a disk, or ``rank5`` for the process of a rank.
    HOST_CPU_BUSY = "host-cpu-busy"
    """Share of processor time that was used, 0 to 1. If the device is empty, of all cores."""
    HOST_CPU_STEAL = "host-cpu-steal"
    """Share that a hypervisor took away, 0 to 1."""
    HOST_RUN_QUEUE = "host-run-queue"
    """Threads that run or can run."""
    HOST_MEMORY_AVAILABLE_BYTES = "host-memory-available-bytes"
    HOST_MEMORY_TOTAL_BYTES = "host-memory-total-bytes"
    HOST_SWAP_IN_BYTES = "host-swap-in-bytes"
    HOST_SWAP_OUT_BYTES = "host-swap-out-bytes"
    HOST_PAGE_FAULTS = "host-page-faults"
    """Counter: all page faults. Most of them read no disk."""
    HOST_MAJOR_FAULTS = "host-major-faults"
    """Counter: page faults that read a disk."""
    HOST_DISK_READ_BYTES = "host-disk-read-bytes"
    HOST_DISK_WRITE_BYTES = "host-disk-write-bytes"
    HOST_DISK_BUSY_NS = "host-disk-busy-ns"
    HOST_PRESSURE_CPU_NS = "host-pressure-cpu-ns"
    """Counters of the time in which a thread waited for the resource: pressure-stall information."""
    HOST_PRESSURE_MEMORY_NS = "host-pressure-memory-ns"
    HOST_PRESSURE_IO_NS = "host-pressure-io-ns"
    RANK_CPU_NS = "rank-cpu-ns"
    """Counter: processor time of a rank's process, all threads."""
    RANK_RESIDENT_BYTES = "rank-resident-bytes"
    RANK_THREADS = "rank-threads"
    RANK_VOLUNTARY_SWITCHES = "rank-voluntary-switches"
    RANK_INVOLUNTARY_SWITCHES = "rank-involuntary-switches"
    """Counter: how often it lost a core although it could continue."""
    RANK_PAGE_FAULTS = "rank-page-faults"
    RANK_MAJOR_FAULTS = "rank-major-faults"
    RANK_RUN_DELAY_NS = "rank-run-delay-ns"
    """Counter: the time in which its main thread could run but had no core."""
    RANK_CORE = "rank-core"
    """Number of the core on which its main thread last ran."""
    RANK_THROTTLED_NS = "rank-throttled-ns"
    """Counter: the time in which the processor quota of its cgroup, or of a parent, stopped threads. Threads on several
    cores count separately."""

    # The clock: device is the collector.
    CLOCK_OFFSET_NS = "clock-offset-ns"
    """The collector's wall clock minus this host's, by the fastest of a few pings."""
    CLOCK_ROUND_TRIP_NS = "clock-round-trip-ns"
    """Round trip of that ping. The error of the offset is at most half of the round trip."""


BY_OPERATOR = "an operator"
"""Start of the reason of a driver's decision that an operator requested."""


class Happening(StrEnum):
    """Events, each with the content of its ``text``."""

    LINK_DOWN = "link-down"
    """A NIC or RDMA port lost its link. Text: free text, which begins with ``LINK_ALREADY_DOWN`` if it was down before
    sampling began."""
    LINK_UP = "link-up"
    """The link is back. Text: free text."""
    LINK_FLAPS = "link-flaps"
    """The link was lost and came back between two samples. Text: the number of losses."""
    LINK_TAKEN_DOWN = "link-taken-down"
    """Its owner took the interface down. LINK_UP follows when it is up again."""
    DEVICE_GONE = "device-gone"
    """A NIC or GPU disappeared. Text: free text."""
    GPU_SEEN = "gpu-seen"
    """Once, when sampling began. Text: the GPU's UUID."""
    GPU_XID = "gpu-xid"
    """Text: the number of the Xid, a space, free text."""
    GPU_ERROR = "gpu-error"
    """Another critical event of a GPU: ECC, poison, lost. Text: free text."""
    BUSY_PROCESS = "busy-process"
    """A process that is no rank uses more than half of a core. Device: its ``core3``, or empty. Text: ``pid name
    share``. Small processes with the same name and core are added up: the text has the pid of the busiest."""
    RANK_STOPPED = "rank-stopped"
    """The process of a rank was stopped by a signal. Device: ``rank5``."""
    RANK_CONTINUED = "rank-continued"
    MEMORY_SHORT = "memory-short"
    """Processes wait for memory. Text: ``pid name bytes`` of the largest process that is no rank, or empty."""
    DRIVER = "driver"
    """A decision of the driver of the job. Device: ``driver``. Text: the name of the decision, a colon, the reason.
    Host: the node that it is about, or ``driver``."""
    OOM_KILL = "oom-kill"
    """The kernel killed processes because memory ran out. Text: the number of processes."""


LINK_ALREADY_DOWN = "already down"
"""Start of the text of LINK_DOWN or LINK_TAKEN_DOWN if the link was down when sampling began."""
