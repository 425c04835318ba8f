"""The ``flight-recorder`` text of a rank: torch's recorders in this rank, and the order in which they are used.

    dump_nccl_trace_json        NCCL; it queries CUDA events
    file:PATH                   what torch wrote on a timeout
    torch_comms_fr_trace_json   torchcomms in torch, likewise
    torchcomms_fr_trace_json    the same as a package
    fr_trace_json               CPU: gloo. Only operations that have not ended, whatever the parameters

A text is one dump, cut to the relevant part: the first in the order above that has content. It has two more fields:
``source`` is the recorder of the dump, and ``beside`` holds the dumps of all other recorders that have content.

No handler here takes the GIL: JSON has no Python stacks. Without parameters a handler returns all its records. With
``onlyactive``, a rank that is in no collective returns an empty dump.

Querying an event is a CUDA call in a thread of the rank. It may wait for a lock of a dead device, so a handler may not
return. It also makes a graph capture of another thread fail. So NCCL is queried only while a rank has stalled.
Source: Handlers.cpp, FlightRecorderDetail.hpp and ProcessGroupNCCL.cpp of torch.

Dump files: the rank's identity names the places (``telemetry/record/rank_identity.py``). They may name any file, so
each is opened with the rights of the rank's user and without following a link. It is used only if it is a regular file
of that user, with one name, of bounded size, and written since the rank entered its current step. One file of a user is
converted at a time, which bounds the memory. If the file system of a user does not answer, other users do not wait.
"""

import json
import math
import os
import stat
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

from telemetry.evidence.worker_client import ask_handler, handler_names
from telemetry.files.access import rights_of
from telemetry.files.plain_pickle import CONVERT_S, json_of_pickle
from telemetry.record.rank_identity import DUMP_PATHS
from telemetry.records import RankIdentity

MAX_PLACES = 16
MAX_DUMP_BYTES = 64 * 2**20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAX_WAIT_S = 60.0
_of_user: dict[int, threading.Lock] = {}


def dump_files(identity: RankIdentity, since_ns: int, by_s: float = math.inf) -> Iterator[tuple[str, str]]:
    """Path and JSON text of each readable dump that was written after ``since_ns`` (wall clock). Never raises.

    ``by_s`` (``time.monotonic``): later files are left out, unless the file system itself does not answer.
    """
    for path in _places(identity):
        with suppress(OSError):
            text = _text_of(path, identity, max(since_ns, identity.started_ns), by_s)
            if text is not None:
                yield path, text


def seconds_until(by_s: float) -> float:
    return min(max(by_s - monotonic(), 0.0), _MAX_WAIT_S)


def _text_of(path: str, identity: RankIdentity, since_ns: int, by_s: float) -> str | None:
    """The JSON text of a dump. Reads one file of an owner at a time.

    Raises:
        OSError: there is no such file, it must not be read, or it is too late.
    """
    owner = os.geteuid() if identity.uid < 0 else identity.uid
    lock = _of_user.setdefault(owner, threading.Lock())
    if not lock.acquire(timeout=seconds_until(by_s)):
        raise TimeoutError(f"another dump of user {owner} takes too long")
    try:
        data = _read(path, owner, since_ns)
        if data.lstrip()[:1] == b"{":
            return data.decode(errors="replace")
        user = owner if os.geteuid() == 0 != owner else None
        return json_of_pickle(data, within_s=min(CONVERT_S, seconds_until(by_s)), user=user)
    finally:
        lock.release()


def _places(identity: RankIdentity) -> list[str]:
    with suppress(ValueError, RecursionError):
        paths = json.loads(identity.meta.get(DUMP_PATHS, "[]"))
        if isinstance(paths, list):
            texts = [path for path in paths[:MAX_PLACES] if isinstance(path, str)]
            return [path for path in texts if os.path.isabs(path) and "\0" not in path]
    return []


def _read(path: str, owner: int, since_ns: int) -> bytes:
    with rights_of(owner):
        descriptor = os.open(path, _OPEN)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != owner or found.st_nlink > 1:
            raise PermissionError(f"{path} is not a regular file of user {owner}")
        if found.st_mtime_ns < since_ns:
            raise FileNotFoundError(f"{path} is older than the current step")
        data = file.read(MAX_DUMP_BYTES + 1)
    if len(data) > MAX_DUMP_BYTES:
        raise OSError(f"{path} is larger than {MAX_DUMP_BYTES} bytes")
    return data


NCCL = "dump_nccl_trace_json"
FILE = "file:"
GLOO = "fr_trace_json"
_LATER = ("torch_comms_fr_trace_json", "torchcomms_fr_trace_json", GLOO)
HANDLERS = (NCCL, *_LATER)
SOURCE, BESIDE = "source", "beside"
MAX_ENTRIES = 200
"""Number of entries of one recorder that are kept."""
MAX_FILES = 2
"""Largest number of dump files: one of NCCL and one of torchcomms."""
KEPT_A_GROUP = 3
"""The last entries of each process group, completed or not."""
Dump = dict[str, Any]
_one_at_a_time = threading.Lock()
"""Held while a dump is parsed. A large dump takes hundreds of megabytes, and the memory of the agent is limited."""


def ask_flight_recorder(
    identity: RankIdentity,
    since_ns: int,
    *,
    stands_still: bool = True,
    folder: Path | None = None,
    by_s: float = math.inf,
) -> str | None:
    """The text of a living rank. None if no recorder answers and no dump was written after ``since_ns`` (wall clock).

    All handlers are queried in parallel while files are read, so a handler that hangs delays no other. If the rank may
    be capturing a graph (``stands_still`` is False), only gloo is queried. ``folder``: the folder of the rank. Answers
    after ``by_s`` (``time.monotonic``) are left out.
    """
    from_files: list[Dump] = []
    pool = ThreadPoolExecutor(max_workers=len(HANDLERS) + 1, thread_name_prefix="rankscope-recorder")
    try:
        reading = pool.submit(_read_files, identity, since_ns, by_s, from_files)
        offered = handler_names(identity, folder)
        wanted = [name for name in (HANDLERS if stands_still else (GLOO,)) if offered is None or name in offered]
        asked = [pool.submit(_answer_of, identity, name, folder) for name in wanted]
        wait([reading], timeout=seconds_until(by_s))
        done, _ = wait(asked, timeout=seconds_until(by_s))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    answers = [dump for future in asked if future in done for dump in future.result()]
    return _together([*answers, *from_files])


def read_flight_files(
    identity: RankIdentity, since_ns: int, before: str | None = None, *, by_s: float = math.inf
) -> str | None:
    """The text of a rank that does not answer: the dumps that torch wrote, and those of the text ``before``.

    None if nothing was written after ``since_ns``, or if the result equals ``before``. ``by_s`` (``time.monotonic``):
    later files are left out.
    """
    files: list[Dump] = []
    _read_files(identity, since_ns, by_s, files)
    known: list[Dump] = []
    with suppress(ValueError, RecursionError):
        first = json.loads(before or "")
        known = [{SOURCE: "", **first}, *first.pop(BESIDE, [])]
    text = _together([*known, *files]) if files else None
    return None if text == before else text


def _answer_of(identity: RankIdentity, name: str, folder: Path | None) -> list[Dump]:
    return _parsed(name, ask_handler(identity, name, folder))


def _read_files(identity: RankIdentity, since_ns: int, by_s: float, found: list[Dump]) -> None:
    for path, text in islice(dump_files(identity, since_ns, by_s), MAX_FILES):
        found += _parsed(FILE + path, text)


def _parsed(source: str, text: str | None) -> list[Dump]:
    """The dump in ``text``, cut to the relevant part; empty if ``text`` is not a dump."""
    with suppress(ValueError, RecursionError), _one_at_a_time:
        dump = json.loads(text or "")
        if isinstance(dump, dict):
            if isinstance(entries := dump.get("entries"), list):
                dump["entries"] = _relevant_entries(entries)
            return [{**dump, SOURCE: source}]
    return []


def _together(dumps: Iterable[Dump]) -> str | None:
    """One text of all dumps. Dumps with content come first."""
    by_source = {dump[SOURCE]: dump for dump in dumps}
    ordered = sorted(by_source.values(), key=lambda dump: (not _has_content(dump), _place(dump[SOURCE])))
    if not ordered:
        return None
    beside = [dump for dump in ordered[1:] if _has_content(dump)]
    return json.dumps({**ordered[0], BESIDE: beside} if beside else ordered[0])


def _place(source: str) -> int:
    """The position of a source in the order of dumps."""
    if source.startswith(FILE):
        return 1
    return 0 if source == NCCL else 2 + (_LATER.index(source) if source in _LATER else len(_LATER))


def _has_content(dump: Dump) -> bool:
    return bool(dump.get("entries") or dump.get("pg_status"))


def _relevant_entries(entries: list[Any]) -> list[Any]:
    """Pending operations and the last operations of each group, in order, without their large stacks. If there are too
    many, the last operations of each group have priority."""
    num_later: Counter[str] = Counter()
    found: list[tuple[int, int]] = []
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if not isinstance(entry, dict):
            continue
        group = str(entry.get("process_group"))
        has_ended = entry.get("state") == "completed" or bool(entry.get("retired"))
        if num_later[group] < KEPT_A_GROUP or not has_ended:
            found.append((num_later[group], index))
        num_later[group] += 1
    chosen = sorted(index for _, index in sorted(found, key=lambda item: item[0])[:MAX_ENTRIES])
    return [{name: value for name, value in entries[index].items() if name != "frames"} for index in chosen]
