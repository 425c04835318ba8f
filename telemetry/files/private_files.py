"""Private files on machines with other users who may be hostile.

    /var/spool/rankscope  /  run  /  0  /  rank-00003  /  meta.json
    as the user gave it      ^ no links, one owner, each opened relative to the one before

Every file is opened relative to the descriptor of its folder, without following a link, and checked after it is open: a
regular file, of the folder's owner, with one name. A swap between check and use has no effect. Nothing may be mounted
below the spool, because the file system of a mount decides what owner it reports. New folders have mode 0700 and new
files 0600 under every umask; RANKSCOPE_UMASK=027 lets the group read. Root works with the owner's rights.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from telemetry.errors import UnsafeFolderError
from telemetry.files.access import WRITABLE_BY_OTHERS, file_mode, folder_mode, make_exact, open_on_mount, rights_of

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_OPEN_FILE = os.O_NONBLOCK | os.O_NOCTTY
_OF_LINK_PIPE_SOCKET = (errno.ELOOP, errno.ENXIO)
"""Errors of the kernel when a link, a socket, or a pipe without a reader is opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """An open folder. Every method raises OSError if the folder or a file in it cannot be used."""

    descriptor: int
    path: Path
    """Path for messages."""
    owner: int
    """User id."""

    def tighten(self) -> None:
        """Remove permissions that a new folder does not get. Older versions created folders with more permissions."""
        mode = stat.S_IMODE(os.fstat(self.descriptor).st_mode)
        if self.owner == os.geteuid() and mode & ~folder_mode() & 0o777:
            os.fchmod(self.descriptor, mode & folder_mode())

    def names(self) -> list[str]:
        return os.listdir(self.descriptor)

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """A descriptor of a regular file of the folder's owner. With O_CREAT a new file is private; never pass O_TRUNC.

        Raises:
            OSError: it is a link, a pipe, a device, another user's file, or a file that has a second name.
        """
        irregular = OSError(errno.EINVAL, "not a regular file of the folder's owner", str(self.path / name))
        try:
            descriptor, is_new = self._opened(name, flags | _OPEN_FILE)
        except OSError as error:
            if error.errno in _OF_LINK_PIPE_SOCKET:
                raise irregular from error
            raise
        try:
            found = os.fstat(descriptor)
            ours = found.st_uid in (self.owner, os.geteuid())
            if not stat.S_ISREG(found.st_mode) or not ours or found.st_nlink > 1:
                raise irregular
            if is_new:
                make_exact(descriptor, found, file_mode())
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def make(self, name: str) -> int:
        """A descriptor of a new, empty file, for reading and writing. An existing file is removed first."""
        with suppress(FileNotFoundError):
            self.remove(name)
        return self.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def read(self, name: str, max_bytes: int) -> bytes:
        """The first ``max_bytes`` of a file."""
        with os.fdopen(self.open(name), "rb") as file:
            return file.read(max_bytes)

    def write(self, name: str, content: bytes, *, at_ns: int | None = None) -> None:
        """Replace a file atomically. ``at_ns`` becomes its time of change."""
        new = f"{name}.{os.getpid()}.new"
        try:
            with os.fdopen(self.make(new), "wb") as file:
                file.write(content)
                file.flush()
                if at_ns is not None:
                    os.utime(file.fileno(), ns=(at_ns, at_ns))
            self.rename(new, name)
        except BaseException:
            with suppress(OSError):
                self.remove(new)
            raise

    def changed_ns(self, name: str) -> int:
        """The time of the last change of a file, nanoseconds since the epoch."""
        return self._status(name).st_mtime_ns

    def kind(self, name: str) -> int:
        """The type of a file: ``stat.S_IFDIR``, ``stat.S_IFLNK`` ..."""
        return stat.S_IFMT(self._status(name).st_mode)

    def rename(self, old: str, new: str) -> None:
        with _named(self.path / new):
            os.rename(old, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def remove(self, name: str) -> None:
        with _named(self.path / name):
            os.unlink(name, dir_fd=self.descriptor)

    def remove_folder(self, name: str, *, with_content: bool, last: Sequence[str] = (), levels: int = 8) -> None:
        """Delete a folder of at most ``levels`` levels, but no files of a mounted file system, in the order of names.
        The files ``last`` are deleted last, so that a folder that is deleted in part can still be recognised."""
        if with_content:
            if not levels:
                raise OSError(errno.ENOTEMPTY, "folders are nested too deeply", str(self.path / name))
            with self.folder(name) as folder:
                names = sorted(folder.names())
                for child in (*(each for each in names if each not in last), *(each for each in last if each in names)):
                    if folder.kind(child) == stat.S_IFDIR:
                        folder.remove_folder(child, with_content=True, levels=levels - 1)
                    else:
                        folder.remove(child)
        os.rmdir(name, dir_fd=self.descriptor)

    def _status(self, name: str) -> os.stat_result:
        descriptor = _open_below(name, os.O_PATH, self.descriptor, self.path)
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def _opened(self, name: str, flags: int) -> tuple[int, bool]:
        """A descriptor, and whether the file is new."""
        if flags & os.O_CREAT:
            try:
                return _open_below(name, flags | os.O_EXCL, self.descriptor, self.path, file_mode()), True
            except FileExistsError:
                if flags & os.O_EXCL:
                    raise
        return _open_below(name, flags & ~os.O_CREAT, self.descriptor, self.path), False

    @contextmanager
    def folder(self, name: str, *, make: bool = False) -> Iterator["Folder"]:
        """A folder in this one, of the same owner. ``make``: create it if it is missing."""
        if make:
            _make_folder(name, self.descriptor, self.path)
        descriptor = _open_below(name, _OPEN_FOLDER, self.descriptor, self.path)
        try:
            owner = os.fstat(descriptor).st_uid
            if owner != self.owner:
                raise UnsafeFolderError(f"{self.path / name} belongs to another user (uid {owner})", hint="remove it")
            yield Folder(descriptor=descriptor, path=self.path / name, owner=owner)
        finally:
            os.close(descriptor)


@contextmanager
def open_folder(path: Path, *, below: int = 0) -> Iterator[Folder]:
    """Open the existing folder at ``path``. In the block, a process of root has the rights of the folder's owner.

    ``below``: this number of the last names in ``path`` must not be links or mount points, and must have one owner. The
    folder before them is trusted, because a person has named it.

    Raises:
        OSError: the folder cannot be opened, or one of these names is not allowed.
    """
    base, names = _parted(path, below)
    with ExitStack() as opened:
        descriptor = _kept(opened, os.open(base, _PLACE))
        if names:
            descriptor = _kept(opened, _open_below(names[0], _PLACE, descriptor, base))
        owner = os.fstat(descriptor).st_uid
        opened.enter_context(rights_of(owner))
        descriptor = _kept(opened, os.open(".", _OPEN_FOLDER, dir_fd=descriptor))
        folder = Folder(descriptor=descriptor, path=Path(base, *names[:1]), owner=owner)
        for name in names[1:]:
            folder = opened.enter_context(folder.folder(name))
        yield folder


@contextmanager
def make_folder(path: Path, *, below: int = 0) -> Iterator[Folder]:
    """The folder at ``path``, created with its parents if it is missing. For the owner's own process.

    ``below``: as in :func:`open_folder`; each of these folders must belong to this user, and only this user may write
    into it.

    Raises:
        UnsafeFolderError: another user owns one of them, or can write into it.
        OSError: it cannot be created.
    """
    base, names = _parted(path, below)
    _make_private(base)
    with ExitStack() as opened:
        descriptor = _kept(opened, os.open(base, _PLACE if names else _OPEN_FOLDER))
        for depth, name in enumerate(names):
            parent = Path(base, *names[:depth])
            _make_folder(name, descriptor, parent)
            descriptor = _kept(opened, _own(parent / name, descriptor))
        yield Folder(descriptor=descriptor, path=path, owner=os.fstat(descriptor).st_uid)


def _own(path: Path, parent: int) -> int:
    """A descriptor of a folder that only this user may write into."""
    try:
        descriptor = _open_below(path.name, _OPEN_FOLDER, parent, path.parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise UnsafeFolderError(f"{path} is a link or a file, not a folder", hint="remove it") from None
        if error.errno == errno.EACCES:
            raise UnsafeFolderError(f"{path} belongs to another user", hint="choose another path or name") from None
        raise
    try:
        check_own(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def check_own(path: Path, found: os.stat_result) -> None:
    """Check that only this user may write into a folder.

    Raises:
        UnsafeFolderError: another user owns it, or can write into it.
    """
    if found.st_uid != os.geteuid():
        raise UnsafeFolderError(
            f"{path} belongs to another user (uid {found.st_uid})", hint="choose another path or name"
        )
    if found.st_mode & WRITABLE_BY_OTHERS:
        raise UnsafeFolderError(f"other users can write into {path}", hint=f"chmod go-w {path}")


def _parted(path: Path, below: int) -> tuple[Path, tuple[str, ...]]:
    """The trusted folder and the names below it."""
    path = path.absolute()
    if not below:
        return path, ()
    return path.parents[below - 1], path.parts[-below:]


def _kept(opened: ExitStack, descriptor: int) -> int:
    opened.callback(os.close, descriptor)
    return descriptor


def _open_below(name: str, flags: int, parent: int, path: Path, mode: int = 0) -> int:
    """A descriptor of ``name`` in the folder ``path``, which ``parent`` has open."""
    try:
        with _named(path / name):
            return open_on_mount(name, flags, mode, folder=parent)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        raise UnsafeFolderError(
            f"{path / name} is a mount point",
            hint="mount the spool folder itself: nothing below it may be a mount point",
        ) from None


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Put the whole path into errors of the block. Calls relative to a folder put only the name into an error."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def _make_folder(name: str, parent: int, path: Path) -> None:
    """Create a folder with the mode of new folders, whatever the umask is, unless the name exists."""
    try:
        with _named(path / name):
            os.mkdir(name, folder_mode(), dir_fd=parent)
    except FileExistsError:
        return
    descriptor = _open_below(name, _PLACE, parent, path)  # O_PATH needs no permission on it
    try:
        make_exact(f"/proc/self/fd/{descriptor}", os.fstat(descriptor), folder_mode())
    finally:
        os.close(descriptor)


def _make_private(path: Path) -> None:
    """Create a folder and its missing parents, each private."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        parent = os.open(folder.parent, _PLACE)
        try:
            _make_folder(folder.name, parent, folder.parent)
        finally:
            os.close(parent)
