"""Other users of one machine, as forked processes without root's rights, and secret files of other users."""

import ctypes
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HONEST, HOSTILE = 61001, 61002
"""User ids that no other user has."""
SECRET = "Traceback (most recent call last): CUDA error: SECRET"
"""A line that an agent would report as a known fault."""
PR_SET_DUMPABLE = 4
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A folder that every user can enter."""

    root: Path

    @property
    def spool(self) -> Path:
        """The spool, as ``deploy/systemd/rankscope-spool.conf`` creates it."""
        return self.root / "spool"

    @property
    def secrets(self) -> tuple[Path, ...]:
        """A private file of root and a private file of the honest user."""
        return self.root / "of-root" / "secret", self.root / "of-honest" / "secret"

    def hostile_folder(self) -> Path:
        return self.root / "of-hostile"

    def snapshot(self) -> list[tuple[object, ...]]:
        """The state of the secrets and their folders. A write, a change of mode or a deletion changes it."""
        return [
            (sorted(os.listdir(path.parent)), path.read_text(), found.st_mode, found.st_uid, found.st_mtime_ns)
            for path in self.secrets
            for found in (path.stat(),)
        ]


@contextmanager
def shared_machine() -> Iterator[Machine]:
    """A folder outside pytest's folder, which no other user can enter."""
    root = Path(tempfile.mkdtemp(prefix="rankscope-users-"))
    machine = Machine(root=root)
    try:
        root.chmod(0o755)
        machine.spool.mkdir()
        machine.spool.chmod(0o1777)
        for path, uid in zip((*machine.secrets, machine.hostile_folder() / "log"), (0, HONEST, HOSTILE), strict=True):
            path.parent.mkdir()
            path.write_text(f"{SECRET}\n" * 3 if path in machine.secrets else "")
            path.chmod(0o600)
            path.parent.chmod(0o700)
            for owned in (path, path.parent):
                os.chown(owned, uid, uid)
        yield machine
    finally:
        shutil.rmtree(root)


@contextmanager
def running_as(uid: int, work: Callable[..., None], *args: object) -> Iterator[multiprocessing.process.BaseProcess]:
    """A process of user ``uid``. It is killed at the end if it still runs."""
    process = _FORK.Process(target=_drop_and_run, args=(uid, work, args), daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def as_user(uid: int, work: Callable[..., None], *args: object) -> None:
    """Run ``work`` to its end as another user."""
    with running_as(uid, work, *args) as process:
        process.join(60)
        assert process.exitcode == 0, process.exitcode


def _drop_and_run(uid: int, work: Callable[..., None], args: tuple[object, ...]) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)  # as after exec: the kernel clears this flag when the user changes
    os.umask(0)
    work(*args)
    os._exit(0)
