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

Time stamps of repeated evidence always increase, because the newest counts:

    wall clock   10  11  12   4   5   6 ... 12  13      set back by 8
    stamps       10  11  12  12+ 12+ 12+ ... 12+ 13     + some nanoseconds: the last evidence has the newest stamp

An agent that restarts while the clock catches up does not know the earlier stamps.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa

from telemetry.evidence.usual import Habit, Issued
from telemetry.files.private_files import open_folder
from telemetry.record.layout import RANK_FOLDER_DEPTH
from telemetry.tables import EVIDENCE


class Stamps:
    """Wall clock, nanoseconds, each later than the one before. For any thread."""

    def __init__(self, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._last_ns = 0

    def __call__(self, *, after_ns: int = 0) -> int:
        """Now; later than ``after_ns``, too, which is not remembered: it may be any number that a file holds."""
        with self._lock:
            self._last_ns = max(self._clock_ns(), self._last_ns + 1)
            return max(self._last_ns, after_ns + 1)


next_stamp_ns = Stamps()
"""Of this process."""


Kind = Literal["state", "flight-recorder", "stack", "log"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FOLDER_NAME = "evidence"
MAX_BYTES = 8 * 2**20
"""Of one text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One text of one rank."""

    rank: int
    at_ns: int
    """Wall clock at which it was taken."""
    kind: Kind
    body: str
    """Empty: there is none any more."""


def keep(folder: Path, evidence: Iterable[Evidence]) -> None:
    """Write it beside the rank's files, each whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    with open_folder(folder, below=RANK_FOLDER_DEPTH) as rank, rank.folder(FOLDER_NAME, make=True) as place:
        for item in evidence:
            place.write(item.kind, item.body.encode(errors="replace")[:MAX_BYTES], at_ns=item.at_ns)


def kept(folder: Path, rank: int) -> list[Evidence]:
    """The evidence in the rank's folder. A text that is too large is left out."""
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
    """Remove what was taken of another step; what to send so that the store forgets it too."""
    before = kept(folder, rank)
    if not before or step_of(before) == step:
        return []
    with suppress(OSError), open_folder(folder, below=RANK_FOLDER_DEPTH) as opened, opened.folder(FOLDER_NAME) as place:
        for item in before:
            with suppress(OSError):
                place.remove(item.kind)
    now = next_stamp_ns(after_ns=max(item.at_ns for item in before))
    return [Evidence(rank=rank, at_ns=now, kind=item.kind, body="") for item in before]


def step_of(evidence: Iterable[Evidence]) -> int | None:
    """The step in ``state``; None if it has none."""
    value = _state(evidence).get("step")
    return value if isinstance(value, int) else None


def died_ns_of(evidence: Iterable[Evidence]) -> int:
    """When the rank's process was seen to end; 0 where it was not."""
    value = _state(evidence).get("died_ns")
    return value if isinstance(value, int) else 0


def ended_by_of(evidence: Iterable[Evidence]) -> str:
    """What ended the rank's process; empty where that was not seen."""
    value = _state(evidence).get("ended_by")
    return value if isinstance(value, str) else ""


def habits_of(evidence: Iterable[Evidence]) -> tuple[Habit, ...]:
    """Of each operation that ``state`` tells, in order; empty where it makes no sense."""
    try:
        return tuple(_habit(row) for row in _state(evidence).get("operations", ()))  # type: ignore[attr-defined]
    except (KeyError, TypeError, ValueError, AttributeError):
        return ()


def _habit(row: dict[str, Any]) -> Habit:
    usual = row["usual"]
    return Habit(
        usual=None if usual is None else Issued(**usual), recent=tuple(Issued(**each) for each in row["recent"])
    )


def living_of(evidence: Iterable[Evidence]) -> Literal["alive", "stopped"]:
    """What the rank's process did when it was last seen alive."""
    return "stopped" if _state(evidence).get("living") == "stopped" else "alive"


def _state(evidence: Iterable[Evidence]) -> dict[str, object]:
    for item in evidence:
        if item.kind == "state":
            with suppress(ValueError, RecursionError):
                value = json.loads(item.body)
                return value if isinstance(value, dict) else {}
    return {}


def evidence_rows(evidence: Iterable[Evidence]) -> pa.Table:
    """Rows of the ``evidence`` table."""
    rows = [{"rank": item.rank, "at_ns": item.at_ns, "kind": item.kind, "body": item.body} for item in evidence]
    return pa.Table.from_pylist(rows, schema=EVIDENCE)
