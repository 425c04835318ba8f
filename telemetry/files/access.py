"""How private files and folders are opened and created: mounts, rights and modes.

Mounts: a name is opened in a folder without leaving the folder's mount.

    spool (trusted)      run: ext4       opened
                         run: FUSE       refused before a request reaches its daemon

A file system reports the owner of its files. A user who mounts one (FUSE) can report any owner, and can delay every
request. So a mount point is refused before a request reaches its file system.

    openat2(RESOLVE_NO_XDEV)      Linux 5.6 or newer: the kernel checks while it opens
    /proc/self/fdinfo: mnt_id     older kernels and sandboxes without that call: O_PATH first, which sends no request

Rights: this thread works with another user's rights.

    root agent -- setfsuid(owner) --> opens, reads, writes, deletes as the owner could -- setfsuid(0) --> root again

The kernel checks every path, file and socket against the file-system user of the calling thread. While that is the
owner of a folder, no link in the folder leads to a file that the owner cannot use anyway. NFS servers do the same.

Modes: new files and folders are private to their user, whatever the umask of the process is.

    RANKSCOPE_UMASK    files    folders
    077 (default)      0600     0700
    027                0640     0750
    022                0644     0755
"""

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from io import BufferedReader
from pathlib import Path

from telemetry.errors import UsageError


def open_input(path: Path) -> BufferedReader:
    """The regular file at ``path``, open for reading.

    Raises:
        OSError: it cannot be opened, or is not a regular file. ``strerror`` and ``filename`` are set.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check_kind(os.fstat(number).st_mode, str(path))
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def read_input(path: Path, *, max_bytes: int) -> bytes:
    """The content of the regular file at ``path``.

    Raises:
        OSError: as for :func:`open_input`, or the file has more than ``max_bytes``.
    """
    with open_input(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EINVAL, f"Larger than {max_bytes:,} bytes", str(path))
    return content


def _check_kind(mode: int, path: str) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "Not a regular file", path)


UMASK_VARIABLE = "RANKSCOPE_UMASK"
USUAL_UMASK = 0o077
WRITABLE_BY_OTHERS = 0o022
_users_umask: int | None = None
NOBODY = 65534
"""A group without rights, for work where the owner's group is not known."""
_UNCHANGED = -1
_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2
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
        OSError: as ``os.open`` does; EXDEV if a file system is mounted on the name.
    """
    if "\0" in name or "/" in name:
        raise ValueError(f"not one name: {name!r}")
    opened = _by_openat2 if _has_openat2() else _by_mount_id
    return opened(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, folder)


@cache
def _has_openat2() -> bool:
    """Whether openat2 works: not on an old kernel, nor in a sandbox that blocks it."""
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
        return os.open(f"/proc/self/fd/{place}", flags & ~os.O_NOFOLLOW)  # ELOOP if it is a link
    finally:
        os.close(place)


def _mount_of(descriptor: int) -> int:
    """The kernel's number of the mount; -1 if it is not known (gVisor, where no user can mount)."""
    with own_rights():
        info = os.open(f"/proc/self/fdinfo/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        lines = os.read(info, 4096).splitlines()
    finally:
        os.close(info)
    with suppress(ValueError):
        return next((int(line.split()[1]) for line in lines if line.startswith(b"mnt_id:")), -1)
    return -1


@contextmanager
def rights_of(user: int, group: int = NOBODY) -> Iterator[None]:
    """File access in the block has the rights of ``user``. Do not start threads or processes in it.

    Without root the block keeps the rights of this process. A parent that dies during the block ends this process when
    the block ends, if this thread has requested a signal for it (``prctl``).

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
    """The signal that this thread gets when its parent dies; 0 if it gets none."""
    number = ctypes.c_int()
    _libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(number))
    return number.value


def _become(user: int, group: int) -> None:
    """Take the rights of ``user`` and ``group``. The group is changed first, because only root may change it."""
    for change, wanted in ((_libc.setfsgid, group), (_libc.setfsuid, user)):
        change(wanted)
        if change(_UNCHANGED) != wanted:
            raise PermissionError(f"cannot work with the rights of user {user}: CAP_SETUID and CAP_SETGID are missing")


def private_umask(environment: Mapping[str, str] = os.environ) -> int:
    """The permission bits that new files and folders do not get: ``RANKSCOPE_UMASK``, by default 077.

    Raises:
        UsageError: it is not an octal number, or it lets others write.
    """
    text = environment.get(UMASK_VARIABLE) or f"{USUAL_UMASK:o}"
    try:
        mask = int(text, 8)
    except ValueError:
        mask = -1
    if not 0 <= mask <= 0o777 or mask & WRITABLE_BY_OTHERS != WRITABLE_BY_OTHERS or mask & 0o700:
        raise UsageError(
            f"{UMASK_VARIABLE} is {text!r}",
            hint="use 077 (private, the default), 027 (readable by the group) or 022 (readable by all)",
        )
    return mask


def be_private() -> None:
    """Make new files of this process private. Call this once, before other processes are started.

    Raises:
        UsageError: as for :func:`private_umask`.
    """
    global _users_umask
    _users_umask = os.umask(private_umask())


def users_umask() -> int | None:
    """The umask before :func:`be_private`, for a program of the user; None if that was not called."""
    return _users_umask


def file_mode() -> int:
    """Permission bits of a new file."""
    return 0o666 & ~private_umask()


def folder_mode() -> int:
    """Permission bits of a new folder."""
    return 0o777 & ~private_umask()


def make_exact(place: int | str, found: os.stat_result, mode: int) -> None:
    """Set ``mode`` on a new file or folder, whatever the umask is. The set-group-ID bit of a parent folder stays."""
    before = stat.S_IMODE(found.st_mode)
    if before != (exact := before & ~0o777 | mode):
        os.chmod(place, exact)
