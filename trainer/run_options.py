"""Options of one launch of a training: name, place, collector, fault. Torch is not imported here."""

from dataclasses import dataclass, field
from pathlib import Path

from trainer.drive.records import Rollback


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPlaces:
    """Addresses of the keepers of replicas (``trainer/replicas``), for the ranks of one node."""

    own: str
    neighbour: str
    """Empty if there is no keeper on another node."""
    keepers: tuple[str, ...]
    """Keepers of all nodes. They may hold parts of the previous attempt."""
    rollback: Rollback | None = None
    """Replicas that must not be loaded, as for checkpoints."""
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of one launch."""

    out: Path
    """Logs, progress, ground truth and, unless ``spool`` says otherwise, the rank files."""
    run_id: str | None = None
    """If None, the name is made from the recipe and the time."""
    attempt: int | None = None
    """Number of restarts of the run so far. If None, the count of torchrun, or 0 without torchrun."""
    fault: str = "none"
    """The fault to inject, in the form that ``trainer/faults/inject.py`` parses."""
    comm_delay_s: float = 0.0
    """How much longer every operation between ranks takes (``trainer/faults/comm_delay.py``)."""
    collector: str | None = None
    """Address of the collector. If it is set, the launcher also runs an agent."""
    agent_options: tuple[str, ...] = ()
    """Options for that agent, such as ``("--stall-floor", "5")``."""
    spool: Path | None = None
    telemetry: bool = True
    labels: tuple[str, ...] = ()
    """``NAME=VALUE``, stored with the run."""
    checkpoints: Path | None = None
    """Folder of checkpoints, on storage that all ranks share. Training continues with the newest complete one in it.
    If None, nothing is saved."""
    replicas: ReplicaPlaces | None = None
    """Set by the executor of a driven job. None if no copies are kept in the memory of nodes."""
