"""Settings of a driven job, for the policy of the driver."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveConfig:
    """Settings of the driver."""

    num_nodes: int
    num_spares: int = 0
    listen: str = ""
    """Address on which the driver listens for nodes on other hosts. Empty: all nodes are on this machine."""
    max_failures: int = 5
    """Attempts in a row that end without a new step. Then the driver gives up."""
    silence_s: float = 10.0
    """A node without a report for this time is lost."""
    stall_s: float = 60.0
    """A job that makes no progress for this time, beyond the learned limit, is restarted even if no finding explains
    it."""
    wait_nodes_s: float = 600.0
    """How long the job waits for enough nodes. Then the driver gives up."""
    slow_ratio: float = 2.0
    """A node whose measured value is lower than that of the others by this factor, twice, is slow."""
    replicas: bool = False
    """Keep copies of the newest state in the memory of two nodes."""
    checks: bool = True
    """Check nodes before they are used, and after a fault."""
    act_on: tuple[str, ...] = ("hung-collective", "dead-rank", "collective-mismatch", "gpu-error")
    """Kinds of findings that restart the job. ``loss-anomaly`` restarts it with a checkpoint before its first step."""
    advise_on: tuple[str, ...] = ("compute-straggler", "loss-anomaly", "slow-link", "gpu-throttled")
    """Kinds that are only recorded as advice. ``max_flaps`` decides about ``nic-flap``."""
    max_flaps: int = 3
    """Findings of ``nic-flap`` for one node within ``flaps_within_s``. More restart the job without that node."""
    flaps_within_s: float = 600.0
