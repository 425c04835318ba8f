"""Works with another user's rights, in this thread only.

    root agent ── setfsuid(owner) ──> opens, reads, writes, deletes as the owner could ── setfsuid(0) ──> root again

The kernel checks every path, file and socket against the file-system user of the calling thread. While that is the
owner of a folder, no link in the folder leads to a file that the owner cannot use anyway. NFS servers do the same.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

NOBODY = 65534
"""A group without rights, for work where the owner's group is not known."""
_UNCHANGED = -1
_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def rights_of(user: int, group: int = NOBODY) -> Iterator[None]:
    """File access in the block has the rights of ``user``. Do not start threads or processes in it.

    Without root the block keeps the rights of this process. A parent that dies during the block ends this process when
    the block ends, if this thread has asked for a signal then (``prctl``).

    Raises:
        PermissionError: this process is root and may not change its rights (no CAP_SETUID or CAP_SETGID).
    """
    if os.geteuid() != 0 or user == 0:
        yield
        return
    if os.getgroups():
        os.setgroups([])  # for the whole process: root needs none of them
    with _changed(user, group):
        yield


@contextmanager
def own_rights() -> Iterator[None]:
    """In a block of :func:`rights_of`, file access has the rights of this process again."""
    if os.geteuid() != 0 or _libc.setfsuid(_UNCHANGED) == 0:
        yield
        return
    with _changed(0, os.getegid()):
        yield


@contextmanager
def _changed(user: int, group: int) -> Iterator[None]:
    before = _libc.setfsuid(_UNCHANGED), _libc.setfsgid(_UNCHANGED)  # of an outer block, or root's
    parent, number = os.getppid(), _death_signal()
    try:
        _become(user, group)
        yield
    finally:
        _become(*before)
        if number:  # the kernel forgets it with each change of the user
            _libc.prctl(_PR_SET_PDEATHSIG, number)
            if os.getppid() != parent:
                os.kill(os.getpid(), number)


def _death_signal() -> int:
    """The signal that this thread gets when its parent dies; 0: none."""
    number = ctypes.c_int()
    _libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(number))
    return number.value


def _become(user: int, group: int) -> None:
    """The group first: only root may change it."""
    for change, wanted in ((_libc.setfsgid, group), (_libc.setfsuid, user)):
        change(wanted)
        if change(_UNCHANGED) != wanted:
            raise PermissionError(f"cannot work with the rights of user {user}: CAP_SETUID and CAP_SETGID are missing")
