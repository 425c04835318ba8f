"""Decides which process is traced, and under which names: pure functions of the environment and the command line.

RANKSCOPE=1              attach; also to a single process that no launcher started
RANKSCOPE_COLLECTOR=URL  attach to the ranks of a launcher, and send what they record to the collector
RANKSCOPE=0, RANKSCOPE_DISABLED=1   do not attach
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from telemetry.errors import UsageError
from telemetry.settings import elastic_run

VARIABLE = "RANKSCOPE"
COLLECTOR = "RANKSCOPE_COLLECTOR"
ON, OFF = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")
LAUNCHERS = ("torchrun", "torch/distributed/run.py", "torch/distributed/launch.py", "torch/distributed/launcher/api.py")
HELPERS = ("torch/_inductor/compile_worker/__main__.py",)
LOCAL_RANKS = (
    "LOCAL_RANK",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
)
"""Variables of launchers for the local rank. The first that is set is used."""
SLURM_JOB, SLURM_STEP = "SLURM_JOB_ID", "SLURM_STEP_ID"


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Names of a rank in its recording."""

    run: str | None
    """If None, the recording has its default name."""
    local_rank: int | None
    """None if no launcher set it."""
    role: str | None = None
    """If None, RANKSCOPE_ROLE is used."""


def wants_attachment(environment: Mapping[str, str]) -> bool:
    """Whether the environment asks to trace ranks.

    Raises:
        UsageError: a variable has a value that cannot be used.
    """
    asked = environment.get(VARIABLE, "").strip().lower()
    if asked not in (*ON, *OFF):
        raise UsageError(f"{VARIABLE} is {environment[VARIABLE]!r}", hint=f"use {VARIABLE}=1 or {VARIABLE}=0")
    if forbids_recording(environment):
        return False
    collector = environment.get(COLLECTOR, "")
    if collector and not _is_address(collector):
        raise UsageError(f"{COLLECTOR} is not the address of a collector", hint=f"use {COLLECTOR}=http://HOST:8719")
    return bool(asked or collector)


def forbids_recording(environment: Mapping[str, str]) -> bool:
    """Whether the environment switches rankscope off, or has a value that cannot be used."""
    is_disabled = environment.get("RANKSCOPE_DISABLED", "") not in ("", "0")
    return is_disabled or environment.get(VARIABLE, "").strip().lower() not in ("", *ON)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def is_no_rank(command: Sequence[str]) -> bool:
    """Whether the process of this command line (``sys.argv``) only starts or helps ranks, and is never a rank."""
    program = command[0].replace("\\", "/") if command else ""
    return program.rpartition("/")[2] in LAUNCHERS[:1] or program.endswith((*LAUNCHERS[1:], *HELPERS))


def is_single_rank(environment: Mapping[str, str]) -> bool:
    """Whether a process that never creates a process group is the only rank of its job.

    This is so if a launcher sets WORLD_SIZE to 1, or if no launcher started the process and RANKSCOPE is on.
    """
    size, rank = environment.get("WORLD_SIZE", "").strip(), environment.get("RANK", "").strip()
    if size:
        return size == "1" and rank in ("", "0")
    return not rank and environment.get(VARIABLE, "").strip().lower() in ON


def names_of(environment: Mapping[str, str]) -> Names:
    """The names that launchers give.

    Raises:
        UsageError: the local rank is not a number.
    """
    return Names(run=_run_of(environment), local_rank=_local_rank_of(environment))


def _run_of(environment: Mapping[str, str]) -> str | None:
    if environment.get("RANKSCOPE_RUN") or elastic_run(environment) or SLURM_JOB not in environment:
        return None
    step = environment.get(SLURM_STEP, "")
    return f"slurm-{environment[SLURM_JOB]}{'.' if step else ''}{step}"


def _local_rank_of(environment: Mapping[str, str]) -> int | None:
    name = next((name for name in LOCAL_RANKS if environment.get(name)), None)
    if name is None:
        return None
    try:
        return int(environment[name])
    except ValueError:
        raise UsageError(f"{name} is {environment[name]!r}", hint="unset it, or give a number") from None
