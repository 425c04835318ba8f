"""torch's own worker server in a rank: a C++ thread on a Unix socket, which answers while Python cannot.

    agent  --POST /handler/fr_trace_json---->  SOCKET  -->  the flight recorder, from a C++ thread
           --POST /handler/dump_traceback-->                the stack of every Python thread, without the GIL

This is a private interface of torch, so it is probed. Without it, or without torch, no server starts and no message is
printed. If there is no path for the socket, one line is printed. The rank itself sends no request.
"""

import hashlib
import os
import socket
import stat
import sys
import tempfile
import time
from contextlib import suppress
from ctypes import py_object, pythonapi
from pathlib import Path
from typing import Any

from telemetry.errors import UnsafeFolderError
from telemetry.files.private_files import Folder, make_folder
from telemetry.printable import log
from telemetry.record.layout import RANK_FOLDER_DEPTH

META_KEY = "worker_server"
"""Key in the identity's ``meta`` for the path of the socket."""
FLIGHT_RECORDER = "TORCH_FR_BUFFER_SIZE"
OLDER_FLIGHT_RECORDER = "TORCH_NCCL_TRACE_BUFFER_SIZE"
"""The older name of that variable. torch uses it if the newer name is not set."""
FLIGHT_ENTRIES = 2000
FOLDER_NAME = "worker"
SOCKET_NAME = "socket"
MAX_PATH_BYTES = 107
"""The limit of AF_UNIX."""
MAX_SERVERS = 4
"""Largest number of servers of one process, which may record several runs in turn: see :func:`_never_destroy`."""

OLD_NS = 3600 * 10**9
"""A socket of this age without a listener belongs to a process that was killed."""

_num_started = 0
_path: Path | None = None


def keep_flight_recorder(environment: Any = os.environ) -> None:
    """Enable torch's flight recorder in later process groups, unless the environment sets it."""
    if OLDER_FLIGHT_RECORDER not in environment:
        environment.setdefault(FLIGHT_RECORDER, str(FLIGHT_ENTRIES))


def start_worker_server(folder: Path) -> dict[str, str]:
    """Start the server of this process, with a socket beside the files of its rank. Returns an addition to the
    identity's ``meta``: empty if there is no server. Never raises. Only this user may open the socket.
    """
    global _num_started, _path
    if "torch" not in sys.modules or _num_started >= MAX_SERVERS:
        return {}
    try:
        path = _place_for_socket(folder)
    except Exception as error:
        log(f"rankscope: no path for the socket of torch's worker server, so evidence of a hang is incomplete: {error}")
        return {}
    try:
        path.unlink(missing_ok=True)
        _listen(path)
        path.chmod(0o600)
    except Exception:
        return {}
    _num_started += 1
    _path = path
    return {META_KEY: str(path)}


def stop_worker_server() -> None:
    """Remove the socket, so that no further request arrives. Never raises."""
    global _path
    path, _path = _path, None
    if path is not None:
        with suppress(OSError):
            path.unlink()


def forget_worker_server() -> None:
    """Forget the server in a forked child: the server and its socket belong to the parent."""
    global _path
    _path = None


def _listen(path: Path) -> None:
    from torch._C._distributed_c10d import _WorkerServer  # noqa: PLC0415  (optional extra, private)

    _never_destroy(_WorkerServer(str(path)))


def _never_destroy(server: Any) -> None:
    """Keep the server until the process ends. Ending it earlier is not safe in torch 2.13: its shutdown holds the GIL
    while it waits for a thread. If that thread has not begun to listen, it waits forever or the process aborts."""
    pythonapi.Py_IncRef(py_object(server))


def _place_for_socket(folder: Path) -> Path:
    """A path in the rank's folder; if that is too long, in a short folder of this user.

    Raises:
        OSError: no folder is private to this user.
    """
    own = folder.absolute() / FOLDER_NAME / SOCKET_NAME
    name = hashlib.blake2b(os.fsencode(own), digest_size=8).hexdigest()
    shared = dict.fromkeys((tempfile.gettempdir(), "/tmp"))
    short = [Path(place) / short_folder_name(os.getuid()) / name for place in shared]
    faults = []
    for path, below in [(own, RANK_FOLDER_DEPTH + 1), *((path, 1) for path in short)]:
        if len(os.fsencode(path)) > MAX_PATH_BYTES:
            faults.append(f"{path} is too long")
            continue
        try:
            _make_private(path.parent, below, is_shared=path is not own)
        except OSError as error:
            faults.append(error.message if isinstance(error, UnsafeFolderError) else str(error))
        else:
            return path
    raise OSError("; ".join(faults))


def short_folder_name(user: int) -> str:
    """The name of this user's folder in the temporary folder."""
    return f"rankscope-{user}-workers"


def _remove_dead_sockets(folder: Folder) -> None:
    """Remove sockets of killed processes. A killed process cannot remove its own. Never raises."""
    with suppress(OSError):
        for name in folder.names():
            with suppress(OSError):
                is_old = time.time_ns() - folder.changed_ns(name) > OLD_NS
                if is_old and folder.kind(name) == stat.S_IFSOCK and not _has_listener(folder, name):
                    folder.remove(name)


def _has_listener(folder: Folder, name: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        try:
            client.connect(f"/proc/self/fd/{folder.descriptor}/{name}")
        except ConnectionRefusedError:
            return False
        except OSError:  # for example, too many requests are waiting
            return True
    return True


def _make_private(folder: Path, below: int, *, is_shared: bool) -> None:
    """Create a folder that only this user can enter. ``is_shared``: other ranks of this user have sockets in it."""
    with make_folder(folder, below=below) as place:
        os.fchmod(place.descriptor, 0o700)  # whatever RANKSCOPE_UMASK is: no other user may reach the server
        if is_shared:
            _remove_dead_sockets(place)
