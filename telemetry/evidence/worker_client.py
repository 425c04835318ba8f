"""Queries a rank through torch's worker server, which answers while the rank's Python cannot.

The rank's files name the path of the socket, and a hostile user may name any path. So it is checked first:

    SPOOL / run / attempt / rank-N / worker / socket       the folder as the agent knows it, whatever comes before "run"
    TEMP / rankscope-UID-workers / NAME                    TEMP: the agent's temporary folder, or /tmp
    elsewhere                                              only of the agent's own user

Below SPOOL and TEMP each folder belongs to the rank's user, and none is a link or a mount point: a file system that a
user has mounted (FUSE) can delay every request. The socket is opened and connected with the rights of that user.
"""

import json
import os
import socket
import stat
import struct
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import OK, HTTPConnection, HTTPException
from pathlib import Path

from telemetry.files.access import open_on_mount
from telemetry.files.private_files import open_folder
from telemetry.process.pid_namespace import pid_of
from telemetry.record.layout import RANK_FOLDER_DEPTH
from telemetry.record.worker_server import FOLDER_NAME, META_KEY, SOCKET_NAME, short_folder_name
from telemetry.records import RankIdentity

_NUM_NAMES = RANK_FOLDER_DEPTH + 2
"""Number of names in the path of the socket below the spool."""


@contextmanager
def open_socket(path: Path, *, user: int, folder: Path | None) -> Iterator[int]:
    """An O_PATH descriptor of the file at ``path``, a path that a rank of ``user`` gave. In the block, a process of
    root has the rights of this user. ``folder``: the rank's folder, if it is known.

    Raises:
        OSError: the file does not exist, or must not be opened.
    """
    place, below = checked_place(path, user=user, folder=folder)
    with open_folder(place.parent, below=below) as opened:
        if opened.owner != user:
            raise PermissionError(f"{place.parent} belongs to another user (uid {opened.owner})")
        descriptor = open_on_mount(place.name, os.O_PATH, folder=opened.descriptor)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISSOCK(found.st_mode) or found.st_uid != user:
                raise PermissionError(f"{place} is not a socket of user {user}")
            yield descriptor
        finally:
            os.close(descriptor)


def checked_place(path: Path, *, user: int, folder: Path | None) -> tuple[Path, int]:
    """Where to open the socket, and how many of the folders before it are not trusted. Accesses no file system.

    Raises:
        PermissionError: the path is not an allowed place.
    """
    own = None if folder is None else folder.absolute() / FOLDER_NAME / SOCKET_NAME
    if own is not None and path.parts[-_NUM_NAMES:] == own.parts[-_NUM_NAMES:]:
        return own, RANK_FOLDER_DEPTH + 1
    temporary = path.parent.parent in (Path(tempfile.gettempdir()), Path("/tmp"))
    if (temporary and path.parent.name == short_folder_name(user)) or (user == os.geteuid() and path.is_absolute()):
        return path, 1
    raise PermissionError(f"{path} is not an allowed path for a socket of user {user}")


ANSWER_S = 2.0
MAX_BYTES = 64 * 2**20
MOST_SILENT = 2
"""Requests without an answer after which a handler is not queried any more. Each such request occupies one of the few
threads of the server permanently."""
_PEER = struct.Struct("3i")
"""Process id, user id and group id of the peer."""
MAX_SILENT_KEYS = 4096
_silent: Counter[tuple[str, int, str]] = Counter()
"""Number of requests without an answer in time, by socket, process and path. The oldest are removed."""
_changing_silent = threading.Lock()


def handler_names(identity: RankIdentity, folder: Path | None = None) -> frozenset[str] | None:
    """The handlers of the rank's server; empty if it does not answer, None if its answer is not a list.

    ``folder``, here and below: the rank's folder. Without it, a socket there is used only if this user owns the rank.
    """
    body = _ask(identity, folder, "GET", "/handler/")
    if body is None:
        return frozenset()
    with suppress(ValueError, RecursionError):
        handlers = json.loads(body)
        if isinstance(handlers, list):
            return frozenset(handler for handler in handlers if isinstance(handler, str))
    return None


def ask_handler(identity: RankIdentity, name: str, folder: Path | None = None) -> str | None:
    """The answer of a handler; None without an answer. Waits ``ANSWER_S`` at most."""
    return _ask(identity, folder, "POST", f"/handler/{name}") or None


def _ask(identity: RankIdentity, folder: Path | None, method: str, place: str) -> str | None:
    """The body of the answer; empty if the server refuses, None without a server or an answer in time."""
    path = identity.meta.get(META_KEY)
    key = (path or "", identity.pid, place)
    if not path or _silent[key] >= MOST_SILENT:
        return None
    connection = _RankConnection(Path(path), identity, folder)
    late = threading.Event()
    try:
        with _ended_in_time(connection, late):
            connection.request(method, place, headers={"Connection": "close"})
            answer = connection.getresponse()
            body = answer.read(MAX_BYTES + 1)
        if late.is_set():
            raise TimeoutError(f"{place} took longer than {ANSWER_S} s")
        return body.decode(errors="replace") if answer.status == OK and len(body) <= MAX_BYTES else ""
    except (OSError, HTTPException):
        if late.is_set():
            with _changing_silent:
                if key not in _silent and len(_silent) >= MAX_SILENT_KEYS:
                    del _silent[next(iter(_silent))]
                _silent[key] += 1
        return None
    finally:
        connection.close()


@contextmanager
def _ended_in_time(connection: "_RankConnection", late: threading.Event) -> Iterator[None]:
    """Connect; after ``ANSWER_S`` set ``late`` and end the connection, whatever it is busy with.

    Raises:
        OSError: the rank has no such socket.
    """

    def end() -> None:
        late.set()
        with suppress(OSError):
            opened.shutdown(socket.SHUT_RDWR)

    connection.connect()
    opened = connection.sock  # the connection forgets it once the head of the answer is there
    timer = threading.Timer(ANSWER_S, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _RankConnection(HTTPConnection):
    """HTTP over a Unix socket on which the rank itself listens: the process at the other end must be the rank."""

    def __init__(self, path: Path, identity: RankIdentity, folder: Path | None) -> None:
        super().__init__("localhost", timeout=ANSWER_S + 1)
        self._path = path
        self._rank = identity
        self._folder = folder

    def connect(self) -> None:
        user = os.geteuid() if self._rank.uid < 0 else self._rank.uid
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        with open_socket(self._path, user=user, folder=self._folder) as place:
            self.sock.connect(f"/proc/self/fd/{place}")
        pid, uid, _ = _PEER.unpack(self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if not pid or (pid, uid) != (pid_of(self._rank), user):
            raise PermissionError(f"{self._path} is not a socket of process {self._rank.pid}")
