"""Asks a rank through torch's worker server; it answers while the rank's Python cannot, but not a stopped process."""

import json
import os
import socket
import struct
from collections import Counter
from http.client import OK, HTTPConnection, HTTPException
from typing import Any

from telemetry.integrations.worker_server import META_KEY
from telemetry.owner_rights import rights_of
from telemetry.records import RankIdentity

ANSWER_S = 2.0
MAX_ENTRIES = 200
"""Of the flight recorder, in all."""
KEPT_A_GROUP = 3
"""The last ones of each process group, done or not."""
MAX_BYTES = 64 * 2**20
_PEER = struct.Struct("3i")
"""Process, user, group."""


def ask_flight_recorder(identity: RankIdentity) -> str | None:
    """The flight recorder of a rank as JSON text, cut to what counts; None where there is no answer."""
    return _cut(_ask(identity, "fr_trace_json"))


def ask_traceback(identity: RankIdentity) -> str | None:
    """The stacks of a rank's Python threads, as faulthandler writes them; None where there is no answer."""
    return _ask(identity, "dump_traceback")


def _ask(identity: RankIdentity, handler: str) -> str | None:
    """Waits a bounded time."""
    path = identity.meta.get(META_KEY)
    if not path:
        return None
    connection = _RankConnection(path, identity)
    try:
        connection.request("POST", f"/handler/{handler}", headers={"Connection": "close"})
        answer = connection.getresponse()
        body = answer.read(MAX_BYTES + 1)
        return body.decode(errors="replace") if answer.status == OK and len(body) <= MAX_BYTES else None
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


class _RankConnection(HTTPConnection):
    """HTTP over a Unix socket on which the rank itself listens; waits ``ANSWER_S`` at most for each part of an answer.

    The path comes from the rank's files, which may name any socket. It is opened with the rights of the rank's user and
    without following a link, and the process at the other end must be the rank.
    """

    def __init__(self, path: str, identity: RankIdentity) -> None:
        super().__init__("localhost", timeout=ANSWER_S)
        self._path = path
        self._rank = identity

    def connect(self) -> None:
        """Raises:
        OSError: no socket of the rank.
        """
        user = os.geteuid() if self._rank.uid < 0 else self._rank.uid
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        with rights_of(user):
            place = os.open(self._path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                self.sock.connect(f"/proc/self/fd/{place}")
            finally:
                os.close(place)
        pid, uid, _ = _PEER.unpack(self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if (pid, uid) != (self._rank.pid, user):
            raise PermissionError(f"{self._path} is not a socket of process {self._rank.pid}")


def _cut(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        dump: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(dump, dict):
        return None
    entries = dump.get("entries")
    if not isinstance(entries, list):
        return text
    return json.dumps({**dump, "entries": _that_count(entries)})


def _that_count(entries: list[Any]) -> list[Any]:
    """What has not ended and the last of each group, in their order; of too many, the last of each group first."""
    seen: Counter[str] = Counter()
    found: list[tuple[int, int]] = []
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if not isinstance(entry, dict):
            continue
        group = str(entry.get("process_group"))
        if seen[group] < KEPT_A_GROUP or not _has_ended(entry):
            found.append((seen[group], index))
        seen[group] += 1
    chosen = sorted(found, key=lambda one: one[0])[:MAX_ENTRIES]
    return [entries[index] for index in sorted(index for _, index in chosen)]


def _has_ended(entry: dict[str, Any]) -> bool:
    return entry.get("state") == "completed" or bool(entry.get("retired"))
