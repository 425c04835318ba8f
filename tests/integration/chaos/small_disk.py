"""A disk of a few megabytes that can be full: a tmpfs in a private folder. Needs root."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MOUNT_S = 30
LEAST_BYTES = 4096
FILLER = "filler"


class SmallDisk:
    """A folder on a small disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        """Use every page that is free now."""
        number = os.open(self.folder / FILLER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        size, step = 0, 2**24
        while step >= LEAST_BYTES:
            try:
                os.posix_fallocate(number, size, step)
                size += step
            except OSError:
                step //= 2
        os.close(number)

    def free(self) -> None:
        (self.folder / FILLER).unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path, *, size_mib: int) -> Iterator[SmallDisk]:
    """A small disk that is mounted during the block."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "rankscope-chaos", str(folder)]
    subprocess.run(command, check=True, timeout=MOUNT_S)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=MOUNT_S)
