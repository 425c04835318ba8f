"""The folder of a job: what driver, executors and operators of one user share.

    OUT/drive/
      job.json          config, options and settings: every executor trains the same
      state.json        the state of the driver, for the next driver
      driver.json       address and token of the driver
      decisions.jsonl   every decision, oldest first
      lock              held by the process that starts the driver
      nodes/NAME/       lock, spool and files of a node
      rendezvous-3      where the ranks of attempt 3 meet, if all nodes are on one machine

The folder is private, because the token in it gives control of the job. It is on storage that all nodes share.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from telemetry.errors import UnreadableError, UsageError
from telemetry.files.private_files import Folder, check_own, make_folder, open_folder
from trainer.config import TrainConfig
from trainer.drive.records import Decision
from trainer.drive.settings import DriveConfig
from trainer.json_records import decode, encode
from trainer.run_options import RunOptions

NAME = "drive"
NODES = "nodes"
JOB = "job.json"
STATE = "state.json"
DRIVER = "driver.json"
DECISIONS = "decisions.jsonl"
LOCK = "lock"
SPOOL = "spool"
"""Name of the spool in the folder of a node."""
MAX_BYTES = 64 << 20
Record = TypeVar("Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """Content of ``job.json``."""

    train: TrainConfig
    options: RunOptions
    drive: DriveConfig
    started_ns: int = 0
    """When the command that drives the job now was started."""

    @property
    def ranks_per_node(self) -> int:
        return self.train.parallel.topology.world_size // self.drive.num_nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPlace:
    """Content of ``driver.json``."""

    url: str
    token: str
    pid: int = 0
    """Pid of the driver; 0 if it has not started."""


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The folder ``OUT/drive``. Methods raise OSError where it cannot be used, or another user can write into it."""

    out: Path

    @property
    def path(self) -> Path:
        return self.out / NAME

    def make(self) -> None:
        """Create the folder.

        Raises:
            UnsafeFolderError: another user can write into it.
        """
        with make_folder(self.path, below=1) as folder:
            folder.tighten()

    def node(self, name: str) -> Path:
        """The folder of a node."""
        return self.path / NODES / name

    def rendezvous(self, attempt: int) -> Path:
        """The file in which the ranks of an attempt find each other. It is created where it is missing."""
        name = f"rendezvous-{attempt}"
        with self._opened() as folder:
            os.close(folder.open(name, os.O_RDWR | os.O_CREAT))
        return self.path / name

    def write(self, name: str, record: object) -> None:
        """Replace a file atomically."""
        with self._opened() as folder:
            folder.write(name, encode(record))

    def write_text(self, name: str, text: str) -> None:
        """Replace a file atomically."""
        with self._opened() as folder:
            folder.write(name, text.encode())

    def read(self, name: str, kind: type[Record]) -> Record | None:
        """The record in a file; None if there is no file.

        Raises:
            UnreadableError: the file, or the folder, cannot be read.
        """
        try:
            with self._opened() as folder:
                return decode(kind, folder.read(name, MAX_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, UsageError) as error:
            problem = error.message if isinstance(error, UsageError) else error.strerror or error
            raise UnreadableError(
                f"{self.path / name}: {problem}", hint="check the file, or choose another --out for a new job"
            ) from error

    def remove(self, *names: str) -> None:
        """Remove files where they exist."""
        with self._opened() as folder:
            for name in names:
                with suppress(FileNotFoundError):
                    folder.remove(name)

    def append(self, decisions: list[Decision]) -> None:
        """Append decisions to their file. They begin on a new line, also after a torn line."""
        with (
            self._opened() as folder,
            os.fdopen(folder.open(DECISIONS, os.O_RDWR | os.O_APPEND | os.O_CREAT), "ab") as file,
        ):
            size = os.fstat(file.fileno()).st_size
            if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                file.write(b"\n")
            file.writelines(_line(decision) for decision in decisions)

    def decisions(self) -> list[Decision]:
        """All decisions, oldest first. A torn line is left out."""
        try:
            with self._opened() as folder:
                lines = folder.read(DECISIONS, MAX_BYTES).splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            try:
                found.append(decode(Decision, line))
            except UsageError:
                continue
        return found

    @contextmanager
    def _opened(self) -> Iterator[Folder]:
        with open_folder(self.path, below=1) as folder:
            check_own(self.path, os.fstat(folder.descriptor))
            yield folder


@contextmanager
def held_lock(path: Path) -> Iterator[int | None]:
    """Hold ``path/lock`` in the ``with`` block. Yields its descriptor, or None while another process holds the lock."""
    with make_folder(path, below=1) as folder:
        descriptor = folder.open(LOCK, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        yield descriptor
    finally:
        os.close(descriptor)


def is_deleted(lock: int) -> bool:
    """Whether the file of a lock was deleted, and so the folder of the job. A folder that cannot be reached for a while
    is not deleted. ``lock``: a descriptor of :func:`held_lock`."""
    try:
        return os.fstat(lock).st_nlink == 0
    except OSError as error:
        return error.errno == errno.ESTALE  # another host deleted it


def _line(decision: Decision) -> bytes:
    return encode(decision) + b"\n"
