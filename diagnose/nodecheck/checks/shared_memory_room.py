"""Room in /dev/shm: NCCL and data loaders put their buffers there; containers often get 64 MiB."""

import os
from pathlib import Path

from diagnose.nodecheck.result import CheckResult, failed, measured

CHECK = "shared-memory-room"
SHM = Path("/dev/shm")
GIB = 1 << 30


def run(*, measure_s: float, folder: Path = SHM) -> CheckResult:
    """GiB that are free; ``measure_s`` is not needed."""
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return failed(CHECK, str(folder), f"{error.strerror}")
    free, whole = (blocks * found.f_frsize / GIB for blocks in (found.f_bavail, found.f_blocks))
    return measured(CHECK, str(folder), "shared_memory_free_gib", [free], detail=f"of {whole:.3g} GiB")
