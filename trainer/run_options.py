"""Options of one launch of a training: name, place, collector, fault. Torch is not imported here."""

from dataclasses import dataclass, field
from pathlib import Path

from trainer.drive.records import Rollback


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlaces:
    """Addresses of the keepers of replicas (``trainer/replicas``), for the ranks of one node."""

    own: str
    neighbour: str
    """Empty: there is none."""
    keepers: tuple[str, ...]
    """Of all nodes: they may hold parts of the attempt before."""
    rollback: Rollback | None = None
    """Replicas that must not be loaded, as for checkpoints."""
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of one launch."""

    out: Path
    """Logs, progress, ground truth and, unless ``spool`` says otherwise, the rank files."""
    run_id: str | None = None
    """None: made from the recipe and the time."""
    attempt: int | None = None
    """Restarts of the run so far; None: as torchrun counts, else 0."""
    fault: str = "none"
    """As ``trainer/faults/inject.py`` reads it."""
    comm_delay_s: float = 0.0
    """How much longer every operation between ranks takes (``trainer/faults/comm_delay.py``)."""
    collector: str | None = None
    """Address of the collector. If it is set, the launcher also runs an agent."""
    agent_options: tuple[str, ...] = ()
    """Handed on to that agent, such as ``("--stall-floor", "5")``."""
    spool: Path | None = None
    telemetry: bool = True
    labels: tuple[str, ...] = ()
    """``NAME=VALUE``, stored with the run."""
    checkpoints: Path | None = None
    """Folder of checkpoints, on storage that all ranks share. Training continues with the newest complete one in it.
    None: nothing is saved."""
    replicas: ReplicaPlaces | None = None
    """Set by the executor of a driven job. None: no copies in the memory of nodes."""
