"""Events of a host on its disk, beside the rank files: they outlive the agent, and are read where no collector is.

    SPOOL/<run_id>/<attempt>/hosts/<host>.jsonl      one event a line, appended

An event is written here before it is shipped. An agent that starts again ships them all once more: a row that is sent
twice is the same row.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa

from telemetry.samplers.interface import Event
from telemetry.tables import HOST_EVENTS

FOLDER = "hosts"
SUFFIX = ".jsonl"
MAX_BYTES = 32 * 2**20
"""Of a file; more is not written, nor read."""


def append(attempt_folder: Path, host: str, events: Iterable[Event]) -> None:
    """Write ``events`` down.

    Raises:
        OSError: the disk does not take them.
    """
    lines = "".join(json.dumps(asdict(event)) + "\n" for event in events)
    if not lines:
        return
    path = attempt_folder / FOLDER / (quote(host, safe="") + SUFFIX)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        size = file.tell()
        if size >= MAX_BYTES:
            return
        if size:  # a writer that was killed may have torn its last line
            file.seek(-1, os.SEEK_END)
            lines = lines if file.read(1) == b"\n" else f"\n{lines}"
        file.write(lines.encode())


def read(attempt_folder: Path) -> Iterator[tuple[str, list[Event]]]:
    """Each host and its events, in the order in which they were written; a torn or foreign line is left out."""
    for path in sorted((attempt_folder / FOLDER).glob("*" + SUFFIX)):
        try:
            with path.open(errors="replace") as file:
                text = file.read(MAX_BYTES)
        except OSError:
            continue
        yield unquote(path.name.removesuffix(SUFFIX)), [event for line in text.splitlines() for event in _event(line)]


def _event(line: str) -> list[Event]:
    try:
        row = json.loads(line)
        return [Event(at_ns=int(row["at_ns"]), **{name: str(row[name]) for name in ("device", "name", "text")})]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []


def event_rows(host: str, events: Iterable[Event]) -> pa.Table:
    """Rows of ``host_events``."""
    rows = [
        {"host": host, "device": one.device, "at_ns": one.at_ns, "name": one.name, "text": one.text} for one in events
    ]
    return pa.Table.from_pylist(rows, schema=HOST_EVENTS)
