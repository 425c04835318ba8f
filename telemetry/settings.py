"""Settings of a recording process, from its environment. Reading them needs no library.

    RANKSCOPE            1: attach to a training that does not call rankscope (``telemetry/attach``)
    RANKSCOPE_DISABLED   1: everything is a no-op           RANKSCOPE_SPOOL      folder of rank files
    RANKSCOPE_RUN        name of the run                    RANKSCOPE_COLLECTOR  URL of the collector
    RANKSCOPE_HOST       name of this host                  RANKSCOPE_SEGMENTS   most segments a rank keeps (1 MiB each)
    RANKSCOPE_MESH       axes of the job's mesh, the slowest first: pp=2,dp_shard=4,tp=8
    RANKSCOPE_ROLE       role of this rank in a job with several programs: actor, rollout, reward ...

torchrun's RANK, LOCAL_RANK, WORLD_SIZE, TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT, and REPLICA_GROUP_ID and
NUM_REPLICA_GROUPS (``telemetry/replica_groups.py``).
"""

import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from telemetry.errors import UsageError
from telemetry.files.private_files import make_folder
from telemetry.replica_groups import ONE_GROUP, ReplicaGroup
from telemetry.run_names import MAX_HOST_LENGTH, as_role, storable

DEFAULT_PORT = 8719
DEFAULT_COLLECTOR = f"http://127.0.0.1:{DEFAULT_PORT}"
MAX_SEGMENTS = 16
"""Segments of a rank file that are kept by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingSettings:
    """Recording settings from the environment."""

    disabled: bool
    run_id: str
    attempt: int
    rank: int
    local_rank: int
    world_size: int
    host: str
    spool: Path
    collector: str | None
    max_segments: int
    mesh: str = ""
    """The text of the mesh; empty if it is not given."""
    role: str = ""
    """What this rank does in a job with several programs; empty if the job has one program."""
    replica_group: ReplicaGroup = ONE_GROUP
    is_named: bool = False
    """Whether the name of the run was given for this job, so that several launchers use the same one."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "RecordingSettings":
        """The settings in an environment.

        Raises:
            UsageError: a variable that must be a number is not a number.
        """
        world_size = _number(environment, "WORLD_SIZE", 1)
        return cls(
            disabled=environment.get("RANKSCOPE_DISABLED", "") not in ("", "0"),
            run_id=storable(environment.get("RANKSCOPE_RUN") or elastic_run(environment) or _run_by_time(world_size)),
            attempt=_number(environment, "TORCHELASTIC_RESTART_COUNT", 0),
            rank=_number(environment, "RANK", 0),
            local_rank=_number(environment, "LOCAL_RANK", 0),
            world_size=world_size,
            host=host_of(environment),
            spool=spool_of(environment),
            collector=environment.get("RANKSCOPE_COLLECTOR") or None,
            max_segments=_number(environment, "RANKSCOPE_SEGMENTS", MAX_SEGMENTS),
            mesh=environment.get("RANKSCOPE_MESH", "").strip(),
            role=as_role(environment.get("RANKSCOPE_ROLE", "")),
            replica_group=ReplicaGroup.from_environment(environment),
            is_named=bool(environment.get("RANKSCOPE_RUN")),
        )

    def overridden(self, **given: Any) -> "RecordingSettings":
        """These settings with the values that the caller gave: ``run_id``, ``rank``, ``local_rank``, ``world_size``,
        ``host``, ``attempt``, ``spool``, ``collector`` and ``role``. A value of None changes nothing.

        Raises:
            ValueError: a value that must be a number is not a number.
        """
        changed = {name: _AS_SETTING[name](value) for name, value in given.items() if value is not None}
        return replace(self, **changed, is_named=self.is_named or "run_id" in changed)

    def of_no_group(self) -> "RecordingSettings":
        """These settings without a replica group, for a rank whose number the caller gave."""
        return replace(self, replica_group=ONE_GROUP)

    def of_all_groups(self, attempt: int | None) -> "RecordingSettings":
        """These settings with the rank and the number of ranks among all replica groups. Without a common name, each
        group is a run by itself. ``attempt``: as the caller gave it."""
        group = self.replica_group
        if group.count == 1:
            return self
        if not self.is_named:
            return replace(self, run_id=storable(f"{self.run_id}-group-{group.index}"), replica_group=ONE_GROUP)
        # A group that starts again continues the run, while the other groups train on.
        num_ranks = self.world_size * group.count
        return replace(self, rank=group.first_rank(num_ranks) + self.rank, world_size=num_ranks, attempt=attempt or 0)


_AS_SETTING: dict[str, Callable[[Any], Any]] = {
    "run_id": lambda name: storable(str(name)),
    "rank": int,
    "local_rank": int,
    "world_size": int,
    "host": lambda name: storable(str(name))[:MAX_HOST_LENGTH],
    "attempt": int,
    "spool": Path,
    "collector": str,
    "role": lambda role: as_role(str(role)),
}
NETWORK_VARIABLES = (
    *("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_DISABLE", "NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT"),
    "GLOO_SOCKET_IFNAME",
)


def network_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings of the network that collectives use, for the identity of a rank."""
    return {name: environment[name] for name in NETWORK_VARIABLES if environment.get(name)}


def host_of(environment: Mapping[str, str] = os.environ) -> str:
    """The name of this host."""
    return storable(environment.get("RANKSCOPE_HOST") or socket.gethostname())[:MAX_HOST_LENGTH]


def default_spool() -> Path:
    """The folder of rank files without a setting: a private folder below the folder for temporary files."""
    return Path(tempfile.gettempdir()) / f"rankscope-{os.getuid()}" / "spool"


def check_default_spool(spool: Path) -> None:
    """Create the default spool, or check that it belongs to this user: every user can create a folder in its place.

    Raises:
        UnsafeFolderError: another user owns it, or can write into it.
        OSError: it cannot be created.
    """
    if spool == default_spool():
        with make_folder(spool, below=2):
            pass


def spool_of(environment: Mapping[str, str] = os.environ) -> Path:
    """The spool of ranks that start with this environment. It need not exist yet."""
    return Path(environment.get("RANKSCOPE_SPOOL") or default_spool())


def elastic_run(environment: Mapping[str, str]) -> str | None:
    """The run id of torchrun; None if it is not set, or is the default ``none``."""
    found = environment.get("TORCHELASTIC_RUN_ID", "")
    return found if found not in ("", "none") else None


def _run_by_time(world_size: int) -> str:
    """A name from the start time of the launcher, so that its ranks share the name. Launchers on other hosts do not."""
    launched = world_size > 1 or multiprocessing.parent_process() is not None
    started = _started_at(os.getppid()) if launched else None
    return time.strftime("run-%Y%m%d-%H%M%S", time.localtime(started or time.time()))


def _started_at(pid: int) -> float | None:
    """The start time of a process, seconds since the epoch; None if it is not known."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        boot = next(line.split()[1] for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
    except (OSError, ValueError, IndexError, StopIteration):
        return None
    return int(boot) + ticks / os.sysconf("SC_CLK_TCK")


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise UsageError(f"{name} is {text!r}", hint=f"unset it, or give a number: {name}={default}") from None
