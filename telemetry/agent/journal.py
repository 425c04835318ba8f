"""Events of a host on its disk, beside the rank files: they outlive the agent, and are read where no collector is.

    SPOOL/<run_id>/<attempt>/hosts/<host>.jsonl      one event a line, appended

An event is written here before it is shipped. An agent that starts again ships them all once more: a row that is sent
twice is the same row.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa

from telemetry.private_files import open_folder
from telemetry.record.layout import ATTEMPT_FOLDER_DEPTH
from telemetry.samplers.interface import Event
from telemetry.tables import HOST_EVENTS

FOLDER = "hosts"
SUFFIX = ".jsonl"
MAX_NAME = 200
MAX_BYTES = 32 * 2**20
"""Of a file; more is not written, nor read."""


def append(attempt_folder: Path, host: str, events: Iterable[Event]) -> None:
    """Write ``events`` down.

    Raises:
        OSError: the disk does not take them, or something else than a file is in the way.
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
    """Each host and its events, in the order in which they were written; what is torn or foreign is left out."""
    for name, content in _contents(attempt_folder):
        lines = content.decode(errors="replace").splitlines()
        yield unquote(name.removesuffix(SUFFIX)), [event for line in lines for event in _event(line)]


def _contents(attempt_folder: Path) -> list[tuple[str, bytes]]:
    """Name and content of each file, in order of names."""
    found: list[tuple[str, bytes]] = []
    with (
        suppress(OSError),
        open_folder(attempt_folder, below=ATTEMPT_FOLDER_DEPTH) as attempt,
        attempt.folder(FOLDER) as folder,
    ):
        for name in sorted(name for name in folder.names() if name.endswith(SUFFIX)):
            with suppress(OSError):
                found.append((name, folder.read(name, MAX_BYTES)))
    return found


def _file_name(host: str) -> str:
    return quote(host, safe="")[:MAX_NAME] + SUFFIX


def _event(line: str) -> list[Event]:
    try:
        row = json.loads(line)
        at_ns, words = int(row["at_ns"]), {name: str(row[name]) for name in ("device", "name", "text")}
        "".join(words.values()).encode()
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return []
    return [Event(at_ns=at_ns, **words)] if 0 <= at_ns < 2**63 else []


def event_rows(host: str, events: Iterable[Event]) -> pa.Table:
    """Rows of ``host_events``."""
    rows = [
        {"host": host, "device": one.device, "at_ns": one.at_ns, "name": one.name, "text": one.text} for one in events
    ]
    return pa.Table.from_pylist(rows, schema=HOST_EVENTS)
