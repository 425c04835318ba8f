"""A rank's process, as root may look into it: only if it belongs to the owner of the rank's folder.

A rank file names the process that wrote it, and any user can write any number there. So the owner is read from the
kernel, through a descriptor of ``/proc/PID``. The descriptor never leads to a later process with the same number.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from telemetry.birth import BORN, birth_of
from telemetry.errors import UnreadableError
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
        descriptor = os.open(f"/proc/{identity.pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            users = _users(descriptor)
        finally:
            os.close(descriptor)
        if users != {identity.uid}:
            raise UnreadableError(
                f"user {identity.uid} owns the folder, but not process {identity.pid} that it names",
                hint="ranks write into folders of their own user",
            )


@contextmanager
def open_process(pid: int, uid: int) -> Iterator[int]:
    """A descriptor of the folder ``/proc/PID``. ``uid``: the owner of the rank's folder; negative: this user.

    Raises:
        OSError: there is no such process, another user owns it, or it hides its memory from its own user.
    """
    wanted = os.geteuid() if uid < 0 else uid
    descriptor = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid != wanted or _users(descriptor) != {wanted}:
            raise PermissionError(errno.EPERM, "the process of another user", f"/proc/{pid}")
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
