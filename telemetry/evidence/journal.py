"""Events of a host on its disk, beside the rank files. They outlive the agent and can be read without a collector.

    SPOOL/<run_id>/<attempt>/hosts/<host>.jsonl      one event a line, appended

An event is written here before it is shipped. An agent that restarts ships all events again: a row that is sent twice
is the same row.
"""

import io
import json
import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa

from telemetry.agent.samplers.interface import Event
from telemetry.files.private_files import Folder, open_folder
from telemetry.record.layout import ATTEMPT_FOLDER_DEPTH
from telemetry.tables import HOST_EVENTS

FOLDER = "hosts"
SUFFIX = ".jsonl"
MAX_NAME = 200
MAX_BYTES = 32 * 2**20
"""Largest size of a file. Further data is not written, and not read."""
MAX_FILES = 4096
MAX_READ_BYTES = 64 * 2**20
"""Limit for all files of an attempt together."""
MAX_EVENTS = 20_000
"""Largest number of events of a host. Older events are left out."""


def append(attempt_folder: Path, host: str, events: Iterable[Event]) -> None:
    """Append ``events`` to the file of ``host``.

    Raises:
        OSError: the disk is full, or the path is not a file.
    """
    lines = "".join(json.dumps(asdict(event)) + "\n" for event in events)
    if not lines:
        return
    with (
        open_folder(attempt_folder, below=ATTEMPT_FOLDER_DEPTH) as attempt,
        attempt.folder(FOLDER, make=True) as folder,
        os.fdopen(folder.open(_file_name(host), os.O_RDWR | os.O_APPEND | os.O_CREAT), "rb+") as file,
    ):
        size = file.seek(0, os.SEEK_END)
        if size >= MAX_BYTES:
            return
        if size:  # a writer that was killed may have torn its last line
            file.seek(-1, os.SEEK_END)
            lines = lines if file.read(1) == b"\n" else f"\n{lines}"
        file.write(lines.encode())


def read(attempt_folder: Path) -> Iterator[tuple[str, list[Event]]]:
    """Each host and its events, in the order of writing. Invalid lines are left out.

    Holds one file at a time. ``MAX_FILES`` and ``MAX_READ_BYTES`` limit the result: any user can write here.
    """
    room, names = MAX_READ_BYTES, list[str]()
    with suppress(OSError), _opened(attempt_folder) as folder:
        names = sorted(name for name in folder.names() if name.endswith(SUFFIX))[:MAX_FILES]
    for name in names:
        content = _content(attempt_folder, name, min(MAX_BYTES, room))
        room -= len(content)
        if content:
            yield unquote(name.removesuffix(SUFFIX)), _events(content)


def read_host(attempt_folder: Path, host: str) -> list[Event]:
    """The events of one host, in the order in which they were written."""
    return _events(_content(attempt_folder, _file_name(host), MAX_BYTES))


def _content(attempt_folder: Path, name: str, max_bytes: int) -> bytes:
    with suppress(OSError), _opened(attempt_folder) as folder:
        return folder.read(name, max_bytes)
    return b""


@contextmanager
def _opened(attempt_folder: Path) -> Iterator[Folder]:
    """The folder of the journals. A generator must not yield in the block: its caller would get the owner's rights."""
    with open_folder(attempt_folder, below=ATTEMPT_FOLDER_DEPTH) as attempt, attempt.folder(FOLDER) as folder:
        yield folder


def _events(content: bytes) -> list[Event]:
    found: deque[Event] = deque(maxlen=MAX_EVENTS)
    for line in io.BytesIO(content):
        found.extend(_event(line.decode(errors="replace")))
    return list(found)


def _file_name(host: str) -> str:
    return quote(host, safe="")[:MAX_NAME] + SUFFIX


def _event(line: str) -> list[Event]:
    try:
        row = json.loads(line)
        at_ns, texts = int(row["at_ns"]), {name: str(row[name]) for name in ("device", "name", "text")}
        "".join(texts.values()).encode()
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return []
    return [Event(at_ns=at_ns, **texts)] if 0 <= at_ns < 2**63 else []


def event_rows(host: str, events: Iterable[Event]) -> pa.Table:
    """Rows of ``host_events``."""
    return pa.Table.from_pylist([{"host": host, **asdict(event)} for event in events], schema=HOST_EVENTS)
