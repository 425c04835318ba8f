"""Settings of a recording process, from its environment. Reading them needs no library.

    RANKSCOPE_DISABLED   1: everything is a no-op           RANKSCOPE_SPOOL      folder of rank files
    RANKSCOPE_RUN        name of the run                    RANKSCOPE_COLLECTOR  URL of the collector
    RANKSCOPE_HOST       name of this host                  RANKSCOPE_SEGMENTS   most segments a rank keeps (1 MiB each)
    RANKSCOPE_MESH       axes of the job's mesh, the slowest first: pp=2,dp_shard=4,tp=8

and torchrun's RANK, LOCAL_RANK, WORLD_SIZE, TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT.
"""

import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from telemetry.errors import UsageError
from telemetry.files.private_files import make_folder
from telemetry.run_names import MAX_HOST_LENGTH, storable

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
    """As written; empty: not given."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "RecordingSettings":
        """Raises:
        UsageError: a variable that must be a number is none.
        """
        world_size = _number(environment, "WORLD_SIZE", 1)
        return cls(
            disabled=environment.get("RANKSCOPE_DISABLED", "") not in ("", "0"),
            run_id=storable(environment.get("RANKSCOPE_RUN") or _elastic_run(environment) or _run_by_time(world_size)),
            attempt=_number(environment, "TORCHELASTIC_RESTART_COUNT", 0),
            rank=_number(environment, "RANK", 0),
            local_rank=_number(environment, "LOCAL_RANK", 0),
            world_size=world_size,
            host=host_of(environment),
            spool=spool_of(environment),
            collector=environment.get("RANKSCOPE_COLLECTOR") or None,
            max_segments=_number(environment, "RANKSCOPE_SEGMENTS", MAX_SEGMENTS),
            mesh=environment.get("RANKSCOPE_MESH", "").strip(),
        )

    def overridden(
        self,
        *,
        run_id: str | None,
        rank: int | None,
        local_rank: int | None,
        host: str | None,
        attempt: int | None,
        spool: Path | str | None,
        collector: str | None,
    ) -> "RecordingSettings":
        """With what the caller gave in place of what the environment says.

        Raises:
            ValueError: a rank or an attempt is no number.
        """
        return replace(
            self,
            run_id=self.run_id if run_id is None else storable(str(run_id)),
            rank=self.rank if rank is None else int(rank),
            local_rank=self.local_rank if local_rank is None else int(local_rank),
            host=self.host if host is None else storable(str(host))[:MAX_HOST_LENGTH],
            attempt=self.attempt if attempt is None else int(attempt),
            spool=self.spool if spool is None else Path(spool),
            collector=self.collector if collector is None else collector,
        )


NETWORK_VARIABLES = (
    *("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_DISABLE", "NCCL_IB_TIMEOUT", "NCCL_IB_RETRY_CNT"),
    "GLOO_SOCKET_IFNAME",
)


def network_words(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the environment says of the network that collectives use: part of what a rank says about itself."""
    return {name: environment[name] for name in NETWORK_VARIABLES if environment.get(name)}


def host_of(environment: Mapping[str, str] = os.environ) -> str:
    """The name of this host."""
    return storable(environment.get("RANKSCOPE_HOST") or socket.gethostname())[:MAX_HOST_LENGTH]


def default_spool() -> Path:
    """Where rank files go without a setting: a private folder below the temporary one."""
    return Path(tempfile.gettempdir()) / f"rankscope-{os.getuid()}" / "spool"


def check_default_spool(spool: Path) -> None:
    """Create the default spool, or check that it belongs to this user: every user can create a folder in its place.

    Raises:
        UnsafeFolderError: another user owns it, or can write into it.
        OSError: it cannot be made.
    """
    if spool == default_spool():
        with make_folder(spool, below=2):
            pass


def spool_of(environment: Mapping[str, str] = os.environ) -> Path:
    """Where ranks that start with this environment write. The folder need not be there yet."""
    return Path(environment.get("RANKSCOPE_SPOOL") or default_spool())


def _elastic_run(environment: Mapping[str, str]) -> str | None:
    """torchrun's id, unless it is its default ``none``."""
    found = environment.get("TORCHELASTIC_RUN_ID", "")
    return found if found not in ("", "none") else None


def _run_by_time(world_size: int) -> str:
    """Ranks of one launcher get one name: the time at which it started. (Several hosts: set RANKSCOPE_RUN.)"""
    launched = world_size > 1 or multiprocessing.parent_process() is not None
    started = _started_at(os.getppid()) if launched else None
    return time.strftime("run-%Y%m%d-%H%M%S", time.localtime(started or time.time()))


def _started_at(pid: int) -> float | None:
    """When a process started, by Linux's books; None where they do not say."""
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
