"""Access to a rank's process: allowed only if the process and the rank's folder have the same owner.

A rank file names the process that wrote it, and any user can write any number there. So the owner is read from the
kernel, through a descriptor of ``/proc/PID``. The descriptor never leads to a later process with the same number.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from telemetry.errors import UnreadableError
from telemetry.process.birth import BORN, birth_of
from telemetry.records import RankIdentity


def check_owner(identity: RankIdentity) -> None:
    """Return if an agent of this user may serve the rank.

    Raises:
        UnreadableError: another user owns the folder and this process is not root, or the rank's process and
            the folder have different owners.
    """
    if identity.uid != os.geteuid() != 0:
        raise UnreadableError(
            f"user {identity.uid} owns the folder, this agent runs as user {os.geteuid()}",
            hint="run one agent as root, or one for each user",
        )
    born = identity.meta.get(BORN)
    if not born or birth_of(identity.pid) != born:
        return  # the process has ended, and its number may be another's
    with suppress(OSError):
        if not belongs_to(identity.pid, identity.uid):
            raise UnreadableError(
                f"user {identity.uid} owns the folder, but not process {identity.pid} that it names",
                hint="start the rank as the user who owns the folder",
            )


def belongs_to(pid: int, uid: int) -> bool:
    """Whether each user id of a process is ``uid``; a negative one is not checked.

    Raises:
        OSError: there is no such process, or its users are hidden from this one.
    """
    if uid < 0:
        return True
    with _opened(pid) as descriptor:
        return _users(descriptor) == {uid}


@contextmanager
def open_process(pid: int, uid: int) -> Iterator[int]:
    """A descriptor of the folder ``/proc/PID``. ``uid``: the owner of the rank's folder; negative: this user.

    Raises:
        OSError: there is no such process, another user owns it, or it hides its memory from its own user.
    """
    wanted = os.geteuid() if uid < 0 else uid
    with _opened(pid) as descriptor:
        if os.fstat(descriptor).st_uid != wanted or _users(descriptor) != {wanted}:
            raise PermissionError(errno.EPERM, "the process of another user", f"/proc/{pid}")
        yield descriptor


@contextmanager
def _opened(pid: int) -> Iterator[int]:
    descriptor = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def is_there(descriptor: int) -> bool:
    """Whether the process still exists, as a zombie too."""
    try:
        os.stat("stat", dir_fd=descriptor)
    except OSError:
        return False
    return True


def _users(descriptor: int) -> set[int]:
    """Real, effective, saved and file-system user: a program with the set-user-ID bit has several."""
    with os.fdopen(os.open("status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=descriptor), "rb") as file:
        words = next((line.split()[1:] for line in file if line.startswith(b"Uid:")), [])
    return set(map(int, words))
