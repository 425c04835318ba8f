"""Flight-recorder dumps that torch wrote for a rank as a collective timed out: found, opened and turned into JSON.

The rank's identity names the places (``telemetry/record/dump_places.py``). They may name any file, so each is
opened with the rights of the rank's user and without following a link. It counts if it is a regular file of that user,
under one name, of bounded size, and written since the rank came into the step that it is in.

One file of a user is read and converted at a time, which bounds the memory. A user whose file system does not answer
delays no other user.
"""

import json
import math
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic

from telemetry.files.owner_rights import rights_of
from telemetry.files.plain_pickle import CONVERT_S, json_of_pickle
from telemetry.record.dump_places import META_KEY
from telemetry.records import RankIdentity

MAX_PLACES = 16
MAX_DUMP_BYTES = 64 * 2**20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


_MAX_WAIT_S = 60.0
_of_user: dict[int, threading.Lock] = {}


def dump_files(identity: RankIdentity, since_ns: int, by_s: float = math.inf) -> Iterator[tuple[str, str]]:
    """Path and JSON text of each dump that was written since then (wall clock) and can be read. Never raises.

    ``by_s`` (``time.monotonic``): what takes longer is left out, unless the file system itself does not answer.
    """
    for path in _places(identity):
        with suppress(OSError):
            text = _text_of(path, identity, max(since_ns, identity.started_ns), by_s)
            if text is not None:
                yield path, text


def seconds_until(by_s: float) -> float:
    """From now on, bounded."""
    return min(max(by_s - monotonic(), 0.0), _MAX_WAIT_S)


def _text_of(path: str, identity: RankIdentity, since_ns: int, by_s: float) -> str | None:
    """Raises:
    OSError: there is no such file, it must not be read, or it is too late.
    """
    owner = os.geteuid() if identity.uid < 0 else identity.uid
    with _alone(owner, by_s):
        data = _read(path, owner, since_ns)
        if data.lstrip()[:1] == b"{":
            return data.decode(errors="replace")
        user = owner if os.geteuid() == 0 != owner else None
        return json_of_pickle(data, within_s=min(CONVERT_S, seconds_until(by_s)), user=user)


@contextmanager
def _alone(owner: int, by_s: float) -> Iterator[None]:
    """No other file of the owner is read meanwhile.

    Raises:
        TimeoutError: another one takes too long.
    """
    lock = _of_user.setdefault(owner, threading.Lock())
    if not lock.acquire(timeout=seconds_until(by_s)):
        raise TimeoutError(f"another dump of user {owner} takes too long")
    try:
        yield
    finally:
        lock.release()


def _places(identity: RankIdentity) -> list[str]:
    with suppress(ValueError, RecursionError):
        told = json.loads(identity.meta.get(META_KEY, "[]"))
        if isinstance(told, list):
            return [one for one in told[:MAX_PLACES] if _is_path(one)]
    return []


def _is_path(told: object) -> bool:
    return isinstance(told, str) and os.path.isabs(told) and "\0" not in told


def _read(path: str, owner: int, since_ns: int) -> bytes:
    """Raises:
    OSError: there is no such file, or it must not be read.
    """
    with rights_of(owner):
        descriptor = os.open(path, _OPEN)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != owner or found.st_nlink > 1:
            raise PermissionError(f"{path} is not a regular file of user {owner}")
        if found.st_mtime_ns < since_ns:
            raise FileNotFoundError(f"{path} is of an earlier time")
        data = file.read(MAX_DUMP_BYTES + 1)
    if len(data) > MAX_DUMP_BYTES:
        raise OSError(f"{path} is larger than {MAX_DUMP_BYTES} bytes")
    return data
