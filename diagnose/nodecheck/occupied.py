"""Who trains on this machine already: checks take memory and cores, and beside a job they would take them from it.

rank folders of the spools    the rank's process lives and has not ended its recording   -> the host is a job's
NVML, for each GPU            processes that compute there                               -> the GPU is somebody's
                              nobody named, and yet memory is in use; or no NVML         -> nobody knows: take little
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from telemetry.errors import UnreadableError
from telemetry.record.reader import RankReader, find_rank_dirs
from telemetry.records import RankIdentity

START_SLACK_S = 10.0
"""A process that began later than its rank by more than this has only inherited the rank's pid."""
DRIVERS_OWN_SHARE = 0.05
"""Of a GPU's memory, that may be in use while nobody computes there."""


class Use(StrEnum):
    """Whether a GPU is somebody's."""

    FREE = "free"
    TAKEN = "taken"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """A CUDA device and who is there."""

    device: str
    use: Use
    why: str = ""


def spools(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Where ranks of this host record: the folder that the environment names; else those of all users."""
    if named := environment.get("RANKSCOPE_SPOOL"):
        return [Path(named)]
    return sorted(Path(tempfile.gettempdir()).glob("rankscope-*/spool"))


def recording_ranks(folders: list[Path], proc: Path = Path("/proc")) -> list[RankIdentity]:
    """Ranks below these spools whose processes live and record. What cannot be read is nobody's."""
    found: list[RankIdentity] = []
    for folder in folders:
        with suppress(OSError):
            for rank_dir in find_rank_dirs(folder):
                with suppress(UnreadableError, OSError, ValueError, OverflowError):
                    reader = RankReader(rank_dir)
                    identity = reader.identity()
                    if not reader.live().ended and _lives(identity, proc):
                        found.append(identity)
    return found


def in_words(ranks: list[RankIdentity]) -> str:
    """``8 ranks of run llama are recording on this host (pid 4711 and others)``."""
    runs = ", ".join(sorted({one.run_id for one in ranks}))
    many = f"{len(ranks)} ranks of run {runs} are" if len(ranks) > 1 else f"rank {ranks[0].rank} of run {runs} is"
    return f"{many} recording on this host (pid {ranks[0].pid}{' and others' if len(ranks) > 1 else ''})"


def use_of_gpu(device: str, uuid: str, library: Any) -> GpuUse:
    """What NVML says of the GPU with this UUID. ``library`` is the module ``pynvml``; None where there is none."""
    if library is None:
        return GpuUse(device=device, use=Use.UNKNOWN, why="there is no NVML to say who computes there")
    try:
        library.nvmlInit()
        try:
            return _told(device, library, library.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}"))
        finally:
            library.nvmlShutdown()
    except library.NVMLError as error:
        return GpuUse(device=device, use=Use.UNKNOWN, why=f"NVML does not say who computes there ({error})")


def _told(device: str, library: Any, handle: Any) -> GpuUse:
    """Of processes in another namespace NVML names none, so memory in use is asked for, too."""
    processes = [*library.nvmlDeviceGetComputeRunningProcesses(handle), *_of_mps(library, handle)]
    others = sorted({int(one.pid) for one in processes} - {os.getpid()})
    if others:
        many = f"{len(others)} processes compute" if len(others) > 1 else f"process {others[0]} computes"
        return GpuUse(device=device, use=Use.TAKEN, why=f"{many} on it")
    memory = library.nvmlDeviceGetMemoryInfo(handle)
    if memory.used > DRIVERS_OWN_SHARE * memory.total:
        share = memory.used / memory.total
        return GpuUse(device=device, use=Use.UNKNOWN, why=f"{share:.0%} of its memory is in use, nobody says by whom")
    return GpuUse(device=device, use=Use.FREE)


def _of_mps(library: Any, handle: Any) -> Iterator[Any]:
    with suppress(library.NVMLError, AttributeError):
        yield from library.nvmlDeviceGetMPSComputeRunningProcesses(handle)


def _lives(identity: RankIdentity, proc: Path) -> bool:
    """Whether the process that wrote this identity still exists."""
    try:
        words = (proc / str(identity.pid) / "stat").read_text().rpartition(")")[2].split()
        boot_s = next(line for line in (proc / "stat").read_text().splitlines() if line.startswith("btime")).split()[1]
        began_s = int(boot_s) + int(words[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return False
    return words[0] not in "ZX" and began_s <= identity.started_ns / 1e9 + START_SLACK_S
