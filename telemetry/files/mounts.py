"""Open a name in a folder without leaving the folder's mount.

    spool (trusted)      run: ext4       opened
                         run: FUSE       refused before a request reaches its daemon

The owner of a file is what its file system says. A user who mounts one (FUSE) can name any owner, and can let every
request wait. So a mount point is refused before anything asks its file system.

openat2(RESOLVE_NO_XDEV)      Linux 5.6 or newer: the kernel checks while it opens
/proc/self/fdinfo: mnt_id     older kernels and sandboxes without that call: O_PATH first, which asks no file system
"""

import ctypes
import errno
import os
import struct
from contextlib import suppress
from functools import cache

from telemetry.files.owner_rights import own_rights

_OPENAT2 = 437
"""The number of the system call, the same on all architectures of this package."""
_RESOLVE_NO_XDEV = 1
_PLACE = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_CREAT | os.O_EXCL
_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t
_HOW = struct.Struct("=QQQ")
"""``struct open_how`` of openat2(2): flags, mode, resolve."""


def open_on_mount(name: str, flags: int, mode: int = 0, *, folder: int) -> int:
    """A descriptor of ``name``, one name in the open folder ``folder``. A link is not followed.

    ``flags``: as for ``os.open``. With O_CREAT give O_EXCL, too.

    Raises:
        OSError: as ``os.open`` does; EXDEV where something is mounted on the name.
    """
    if "\0" in name or "/" in name:
        raise ValueError(f"not one name: {name!r}")
    opened = _by_openat2 if _has_openat2() else _by_mount_id
    return opened(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, folder)


@cache
def _has_openat2() -> bool:
    """False on an old kernel, and in a sandbox that does not let the call pass."""
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        os.close(_call_openat2(b".", os.O_PATH | os.O_CLOEXEC, 0, root))
    except OSError:
        return False
    finally:
        os.close(root)
    return True


def _by_openat2(name: str, flags: int, mode: int, folder: int) -> int:
    while True:
        try:
            return _call_openat2(os.fsencode(name), flags, mode, folder)
        except InterruptedError:
            continue


def _call_openat2(name: bytes, flags: int, mode: int, folder: int) -> int:
    descriptor: int = _syscall(_OPENAT2, folder, name, _HOW.pack(flags, mode, _RESOLVE_NO_XDEV), _HOW.size)
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fsdecode(name))
    return descriptor


def _by_mount_id(name: str, flags: int, mode: int, folder: int) -> int:
    if flags & _CREATE == _CREATE:
        return os.open(name, flags, mode, dir_fd=folder)  # nothing is mounted on what did not exist
    place = os.open(name, _PLACE | flags & os.O_DIRECTORY, dir_fd=folder)
    try:
        if _mount_of(place) != _mount_of(folder):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
        if flags & os.O_PATH:
            return os.dup(place)
        if flags & os.O_DIRECTORY:
            return os.open(".", flags, dir_fd=place)
        return os.open(f"/proc/self/fd/{place}", flags & ~os.O_NOFOLLOW)  # of a link: ELOOP
    finally:
        os.close(place)


def _mount_of(descriptor: int) -> int:
    """The kernel's number of the mount; -1 where it does not tell (gVisor, which lets nobody mount)."""
    with own_rights():
        info = os.open(f"/proc/self/fdinfo/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        lines = os.read(info, 4096).splitlines()
    finally:
        os.close(info)
    with suppress(ValueError):
        return next((int(line.split()[1]) for line in lines if line.startswith(b"mnt_id:")), -1)
    return -1
