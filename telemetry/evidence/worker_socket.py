"""Opens the socket of a rank's worker server. The rank's files name its path, and a hostile user may name any path.

    SPOOL / run / attempt / rank-N / worker / socket       the folder as the agent knows it, whatever comes before "run"
    TEMP / rankscope-UID-workers / NAME                    TEMP: the agent's temporary folder, or /tmp
    elsewhere                                              only of the agent's own user

Below SPOOL and TEMP each folder belongs to the rank's user, and none is a link or a mount point: a file system that a
user has mounted (FUSE) can let every request wait. The socket is opened and connected with the rights of that user.
"""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from telemetry.files.mounts import open_on_mount
from telemetry.files.private_files import open_folder
from telemetry.record.layout import RANK_FOLDER_DEPTH
from telemetry.record.worker_server import FOLDER_NAME, SOCKET_NAME, short_folder_name

_NUM_NAMES = RANK_FOLDER_DEPTH + 2
"""Of the socket below the spool."""


@contextmanager
def open_socket(path: Path, *, user: int, folder: Path | None) -> Iterator[int]:
    """An O_PATH descriptor of what is at ``path``, which a rank of ``user`` names. Root has the user's rights in the
    block. ``folder``: the rank's folder, where it is known.

    Raises:
        OSError: there is nothing, or it must not be opened.
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
    """Where to open the socket, and how many of the folders before it are not trusted. It asks no file system.

    Raises:
        PermissionError: the path is at none of the places that are allowed.
    """
    own = None if folder is None else folder.absolute() / FOLDER_NAME / SOCKET_NAME
    if own is not None and path.parts[-_NUM_NAMES:] == own.parts[-_NUM_NAMES:]:
        return own, RANK_FOLDER_DEPTH + 1
    temporary = path.parent.parent in (Path(tempfile.gettempdir()), Path("/tmp"))
    if (temporary and path.parent.name == short_folder_name(user)) or (user == os.geteuid() and path.is_absolute()):
        return path, 1
    raise PermissionError(f"{path} is no place for the socket of a rank of user {user}")
