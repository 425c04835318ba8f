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
    """The driver gives up after more than this number of attempts in a row without a new step."""
    silence_s: float = 10.0
    """A node without a report for this time is lost."""
    stall_s: float = 60.0
    """A job that makes no progress for this time, beyond the learned limit, is restarted even if no finding explains
    it."""
    wait_nodes_s: float = 600.0
    """How long the job waits for enough nodes before the driver gives up."""
    slow_ratio: float = 2.0
    """A node is slow in a round of checks if the median value of the other nodes is more than this factor times its
    own. A node that is slow in two rounds in a row is blocked."""
    replicas: bool = False
    """Keep copies of the newest state in the memory of two nodes."""
    checks: bool = True
    """Check nodes before they are used, and after a fault."""
    act_on: tuple[str, ...] = ("hung-collective", "dead-rank", "collective-mismatch", "gpu-error")
    """Kinds of findings that restart the job. ``loss-anomaly`` restarts it with a checkpoint before the first bad
    step."""
    advise_on: tuple[str, ...] = ("compute-straggler", "loss-anomaly", "slow-link", "gpu-throttled")
    """Kinds that are only recorded as advice. ``max_flaps`` decides about ``nic-flap``."""
    max_flaps: int = 3
    """Tolerated findings of ``nic-flap`` for one node within ``flaps_within_s``. After more, the job restarts and the
    node is checked."""
    flaps_within_s: float = 600.0
