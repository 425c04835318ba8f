"""The ``flight-recorder`` text of a rank: which recorders torch has in it, and which of them counts.

    dump_nccl_trace_json        NCCL, of which it queries events
    file:PATH                   what torch wrote on a timeout (dump_files.py)
    torch_comms_fr_trace_json   torchcomms in torch, likewise
    torchcomms_fr_trace_json    the same as a package
    fr_trace_json               CPU: gloo. Only what has not ended, whatever is asked for

A text is one dump, cut to what counts, with two more fields: ``source`` names the recorder that it came from, and
``beside`` holds the dumps of the others that recorded anything. Of several the first in the order above counts.

No handler here takes the GIL: JSON has no Python stacks. Without parameters a handler returns everything that it holds.
With ``onlyactive``, a rank that is in no collective returns an empty dump.

To query an event is a CUDA call in a thread of the rank. It may wait for a lock of a device that is dead, so a handler
may not return. It also makes a graph capture fail that another thread has open, so a rank is asked only while it
stands still. Source: Handlers.cpp, FlightRecorderDetail.hpp and ProcessGroupNCCL.cpp of torch.
"""

import json
import math
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from telemetry.evidence.dump_files import dump_files, seconds_until
from telemetry.evidence.worker_client import ask_handler, handler_names
from telemetry.records import RankIdentity

NCCL = "dump_nccl_trace_json"
FILE = "file:"
GLOO = "fr_trace_json"
_LATER = ("torch_comms_fr_trace_json", "torchcomms_fr_trace_json", GLOO)
HANDLERS = (NCCL, *_LATER)
SOURCE, BESIDE = "source", "beside"
MAX_ENTRIES = 200
"""Of one recorder, in all."""
MAX_FILES = 2
"""Of NCCL and of torchcomms."""
KEPT_A_GROUP = 3
"""The last ones of each process group, done or not."""
Dump = dict[str, Any]
_one_at_a_time = threading.Lock()
"""A dump of many entries takes hundreds of megabytes until it is cut, and the agent has a limit."""


def ask_flight_recorder(
    identity: RankIdentity,
    since_ns: int,
    *,
    stands_still: bool = True,
    folder: Path | None = None,
    by_s: float = math.inf,
) -> str | None:
    """The text of a rank that lives; None where no recorder answers and no dump was written ``since_ns`` (wall clock).

    All handlers are asked at once, and files are read meanwhile: one that hangs costs the others nothing. Of a rank
    that may be capturing a graph (``stands_still`` is False) only gloo's is asked. ``folder``: the rank's. What is
    known at ``by_s`` (``time.monotonic``) is returned.
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
    """The text of a rank that answers no more: what torch wrote, and beside it what is known from ``before``.

    None where nothing was written ``since_ns``, or where ``before`` counts more. ``by_s``: as above.
    """
    files: list[Dump] = []
    _read_files(identity, since_ns, by_s, files)
    known = _known(before) if before else []
    text = _together([*known, *files]) if files else None
    return None if text == before else text


def _answer_of(identity: RankIdentity, name: str, folder: Path | None) -> list[Dump]:
    return _parsed(name, ask_handler(identity, name, folder))


def _read_files(identity: RankIdentity, since_ns: int, by_s: float, found: list[Dump]) -> None:
    """Add each file to ``found`` as soon as it is read."""
    for path, text in islice(dump_files(identity, since_ns, by_s), MAX_FILES):
        found += _parsed(FILE + path, text)


def _parsed(source: str, text: str | None) -> list[Dump]:
    """The dump in ``text``, cut; none where it is no dump."""
    with suppress(ValueError, RecursionError), _one_at_a_time:
        dump = json.loads(text or "")
        if isinstance(dump, dict):
            return [{**_cut(dump), SOURCE: source}]
    return []


def _known(text: str) -> list[Dump]:
    """The dumps that a text was put together of."""
    with suppress(ValueError, RecursionError):
        first = json.loads(text)
        return [{SOURCE: "", **first}, *first.pop(BESIDE, [])]
    return []


def _together(dumps: Iterable[Dump]) -> str | None:
    """One text of all; those that recorded anything come before those that did not."""
    by_source = {dump[SOURCE]: dump for dump in dumps}
    ordered = sorted(by_source.values(), key=lambda dump: (not _has_content(dump), _place(dump[SOURCE])))
    if not ordered:
        return None
    beside = [dump for dump in ordered[1:] if _has_content(dump)]
    return json.dumps({**ordered[0], BESIDE: beside} if beside else ordered[0])


def _place(source: str) -> int:
    """Lower counts more."""
    if source.startswith(FILE):
        return 1
    return 0 if source == NCCL else 2 + (_LATER.index(source) if source in _LATER else len(_LATER))


def _has_content(dump: Dump) -> bool:
    return bool(dump.get("entries") or dump.get("pg_status"))


def _cut(dump: Dump) -> Dump:
    entries = dump.get("entries")
    return {**dump, "entries": _relevant_entries(entries)} if isinstance(entries, list) else dump


def _relevant_entries(entries: list[Any]) -> list[Any]:
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
    return [_without_frames(entries[index]) for index in sorted(index for _, index in chosen)]


def _without_frames(entry: Dump) -> Dump:
    """Stacks of the moment of the call make most of a dump that torch wrote to a file."""
    return {name: value for name, value in entry.items() if name != "frames"}


def _has_ended(entry: Dump) -> bool:
    return entry.get("state") == "completed" or bool(entry.get("retired"))
