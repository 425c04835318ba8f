"""Evidence about a stalled or dead rank: texts, each of one rank, one kind and one moment.

    SPOOL/<run>/<attempt>/rank-00003/evidence/<kind>      the newest of each kind; its time is the file's
    table ``evidence``                                    the same, as shipped

    state            JSON object: process, died_ns, step, open stages, operations (rank_state.py)
    flight-recorder  JSON from torch, cut to the relevant part, with its source (flight_recorder.py)
    stack            JSON object: tool, threads with their frames (stacks.py)
    log              JSON list: lines that do not occur in healthy steps (logs.py)

Evidence stays after the stall. A reader compares the step in ``state`` with the step on the rank's live page, or in its
newest heartbeat: if that step is later, the stall is over. When evidence of the next stall is taken, files of an older
step are deleted, and an empty text in the table replaces them there.

Time stamps of repeated evidence always increase, because readers use the newest:

    wall clock   10  11  12   4   5   6 ... 12  13      set back by 8
    stamps       10  11  12  12+ 12+ 12+ ... 12+ 13     + some nanoseconds: the last evidence has the newest stamp

An agent that restarts while the clock catches up does not know the earlier stamps.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa

from telemetry.evidence.usual import Habit, Issued
from telemetry.files.private_files import open_folder
from telemetry.record.layout import RANK_FOLDER_DEPTH
from telemetry.tables import EVIDENCE


class Stamps:
    """Wall clock in nanoseconds. Each stamp is later than the stamp before. For any thread."""

    def __init__(self, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._last_ns = 0

    def __call__(self, *, after_ns: int = 0) -> int:
        """Now, and later than ``after_ns``. That number comes from a file, so it does not affect later stamps."""
        with self._lock:
            self._last_ns = max(self._clock_ns(), self._last_ns + 1)
            return max(self._last_ns, after_ns + 1)


next_stamp_ns = Stamps()
Kind = Literal["state", "flight-recorder", "stack", "log"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FOLDER_NAME = "evidence"
MAX_BYTES = 8 * 2**20
"""Largest size of a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One text of one rank."""

    rank: int
    at_ns: int
    """Wall clock at which it was taken."""
    kind: Kind
    body: str
    """The text; empty if the evidence was removed."""


def keep(folder: Path, evidence: Iterable[Evidence]) -> None:
    """Write evidence next to the rank's files, each text atomically.

    Raises:
        OSError: it cannot be written.
    """
    with open_folder(folder, below=RANK_FOLDER_DEPTH) as rank, rank.folder(FOLDER_NAME, make=True) as place:
        for item in evidence:
            place.write(item.kind, item.body.encode(errors="replace")[:MAX_BYTES], at_ns=item.at_ns)


def kept(folder: Path, rank: int) -> list[Evidence]:
    """Read the evidence in the rank's folder. Texts that are too large are left out."""
    found: list[Evidence] = []
    with suppress(OSError), open_folder(folder, below=RANK_FOLDER_DEPTH) as opened, opened.folder(FOLDER_NAME) as place:
        for kind in KINDS:
            with suppress(OSError, UnicodeDecodeError):
                body = place.read(kind, MAX_BYTES + 1)
                if len(body) <= MAX_BYTES:
                    at_ns = place.changed_ns(kind)
                    found.append(Evidence(rank=rank, at_ns=at_ns, kind=kind, body=body.decode()))
    return found


def discard_other_steps(folder: Path, rank: int, step: int) -> list[Evidence]:
    """Remove the evidence of another step. Returns the rows that remove it from the store."""
    before = kept(folder, rank)
    if not before or kept_state(before).step == step:
        return []
    with suppress(OSError), open_folder(folder, below=RANK_FOLDER_DEPTH) as opened, opened.folder(FOLDER_NAME) as place:
        for item in before:
            with suppress(OSError):
                place.remove(item.kind)
    now = next_stamp_ns(after_ns=max(item.at_ns for item in before))
    return [Evidence(rank=rank, at_ns=now, kind=item.kind, body="") for item in before]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptState:
    """The parts of a ``state`` text that later evidence needs. Invalid parts have the default."""

    step: int | None = None
    living: Literal["alive", "stopped"] = "alive"
    """The last state of the process before it ended."""
    died_ns: int = 0
    """When the process ended; 0 if that was not observed."""
    ended_by: str = ""
    """What ended the process; empty if that was not observed."""
    habits: tuple[Habit, ...] = ()
    """Habits for each operation, in order."""


def kept_state(evidence: Iterable[Evidence]) -> KeptState:
    """The contents of the ``state`` text in ``evidence``."""
    state: object = None
    with suppress(ValueError, RecursionError):
        state = json.loads(next((item.body for item in evidence if item.kind == "state"), "null"))
    if not isinstance(state, dict):
        return KeptState()
    step, died_ns, ended_by = state.get("step"), state.get("died_ns"), state.get("ended_by")
    habits: tuple[Habit, ...] = ()
    with suppress(KeyError, TypeError, ValueError, AttributeError):
        habits = tuple(
            Habit(
                usual=None if row["usual"] is None else Issued(**row["usual"]),
                recent=tuple(Issued(**issued) for issued in row["recent"]),
            )
            for row in state.get("operations", ())
        )
    return KeptState(
        step=step if isinstance(step, int) else None,
        living="stopped" if state.get("living") == "stopped" else "alive",
        died_ns=died_ns if isinstance(died_ns, int) else 0,
        ended_by=ended_by if isinstance(ended_by, str) else "",
        habits=habits,
    )


def evidence_rows(evidence: Iterable[Evidence]) -> pa.Table:
    """Rows of the ``evidence`` table."""
    return pa.Table.from_pylist([asdict(item) for item in evidence], schema=EVIDENCE)
