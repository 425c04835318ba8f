"""The state page: what a rank does now, for other processes to read.

One page of words in the file ``state``, which is mapped. Each word is stored atomically. The file outlives the process.
"""

import fcntl
import mmap
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns, sleep

import numpy as np

from telemetry.errors import UnreadableError, UsageError
from telemetry.files.private_files import make_folder, open_folder
from telemetry.record import layout
from telemetry.record.clocks.interface import Anchor
from telemetry.record.layout import RANK_FOLDER_DEPTH
from telemetry.stages import STAGE_BY_CODE, Stage

FILE_NAME = "state"
CLAIM_TRIES, CLAIM_PAUSE_S = 10, 0.002
PLAIN_AXES = ("dp", "pp", "tp")
"""Meaning of 0, 1 and 2 on older pages: bits 0, 1 and 2 of a plain mesh."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSpan:
    """A stage that has begun and not ended."""

    stage: Stage
    since_ns: int
    """CLOCK_MONOTONIC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The last collective of a group, or the last transfer of a direction and peer."""

    mask: int
    """Bit mask of the mesh axes along which the group lies; 0 if not known, or if it lies along no axis."""
    stage: Stage | None
    """None for an operation without a stage, such as a barrier."""
    peer: int
    """Global rank of the other side of a transfer; -1 for a collective."""
    issued: int
    completed: int
    """Numbers of operations, from 1. They are equal if no operation is pending."""
    issued_ns: int
    completed_ns: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """A state page as read. Times are CLOCK_MONOTONIC of the rank's host; ``anchor`` converts them."""

    pid: int
    ended: bool
    """Whether the rank stopped recording, normally or with an error."""
    failed: bool
    """Whether the rank stopped recording with an error."""
    step: int
    """The current step; -1 before the first step."""
    step_started_ns: int
    beat_ns: int
    recorded: int
    dropped: int
    """Dropped by all processes of the rank. ``recorded`` and ``dropped`` are from the time ``beat_ns``: they are
    written at every step, segment and stop."""
    anchor: Anchor
    open_spans: tuple[OpenSpan, ...]
    """Open stages, the innermost last."""
    operations: tuple[Operation, ...]
    identity_ns: int = 0
    """``started_ns`` of an identity that was rewritten while the rank recorded; 0 if it was not."""

    @property
    def stage(self) -> Stage | None:
        """The innermost open stage."""
        return self.open_spans[-1].stage if self.open_spans else None


class StatePage:
    """The page for its writer. ``words`` is the page. A word is written by one machine instruction.

    Raises:
        UsageError: another live process records as this rank.
        OSError: the folder cannot be written.
    """

    def __init__(self, folder: Path, anchor: Anchor) -> None:
        with make_folder(folder, below=RANK_FOLDER_DEPTH) as opened:
            self._fd = opened.open(FILE_NAME, os.O_RDWR | os.O_CREAT)
        try:
            _claim(self._fd, folder)
            os.posix_fallocate(self._fd, 0, layout.STATE_BYTES)
            self.words = memoryview(mmap.mmap(self._fd, layout.STATE_BYTES)).cast("q")
        except BaseException:
            os.close(self._fd)
            raise
        self._write_header(anchor)

    def _write_header(self, anchor: Anchor) -> None:
        page = np.zeros((), layout.STATE_PAGE)
        if self.words[0] == layout.STATE_MAGIC:
            page["dropped_before"] = self.words[layout.WORD_DROPPED] + self.words[layout.WORD_DROPPED_BEFORE]
        page["version"], page["pid"], page["flags"] = layout.STATE_VERSION, os.getpid(), layout.STATE_STARTED
        page["step"], page["beat_ns"] = -1, monotonic_ns()
        page["anchor_monotonic_ns"], page["anchor_wall_ns"] = anchor.monotonic_ns, anchor.wall_ns
        self.words[:] = memoryview(page.tobytes()).cast("q")
        self.words[0] = layout.STATE_MAGIC

    def end(self, *, failed: bool = False) -> None:
        """Write that the rank stops recording, normally or with an error."""
        self.words[layout.WORD_BEAT] = monotonic_ns()
        how = layout.STATE_FAILED if failed else 0
        self.words[layout.WORD_FLAGS] = layout.STATE_STARTED | layout.STATE_ENDED | how

    def close(self) -> None:
        """Close the file. The page stays mapped while ``words`` is in use."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)  # the mapping keeps a descriptor of its own, and with it the lock
        os.close(self._fd)

    def abandon(self) -> None:
        """Close the file in a forked child. The lock stays, because it is the parent's."""
        os.close(self._fd)


def _claim(fd: int, folder: Path) -> None:
    """Lock the file. It is tried several times, because :func:`is_held` also locks the file for a moment."""
    for _ in range(CLAIM_TRIES):
        with suppress(BlockingIOError):
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        sleep(CLAIM_PAUSE_S)
    raise UsageError(
        f"{folder}: another process records as this rank",
        hint="give each run a unique name: rankscope.start(run=...), or RANKSCOPE_RUN",
    )


def is_held(folder: Path) -> bool:
    """Whether a process records into this page: such a process holds the lock. Needs no process number. True if the
    file cannot be opened."""
    try:
        with open_folder(folder, below=RANK_FOLDER_DEPTH) as opened:
            fd = opened.open(FILE_NAME)
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def read_state(folder: Path) -> LiveState:
    """The state page of the rank whose folder this is.

    Raises:
        UnreadableError: there is no such file, or it is not a state page.
    """
    path = folder / FILE_NAME
    try:
        with open_folder(folder, below=RANK_FOLDER_DEPTH) as opened:
            raw = opened.read(FILE_NAME, layout.STATE_BYTES)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}", hint="check that this is the folder of a rank") from error
    if len(raw) < layout.STATE_BYTES or int.from_bytes(raw[:8], "little") != layout.STATE_MAGIC:
        raise UnreadableError(
            f"{path} is not a state page", hint="the rank died during its start, or the file is damaged"
        )
    return _decode(np.frombuffer(raw, layout.STATE_PAGE, count=1)[0])


def _decode(page: np.void) -> LiveState:
    spans = [
        OpenSpan(stage=STAGE_BY_CODE[code], since_ns=int(since))
        for code, since in enumerate(page["open_since"])
        if since and code in STAGE_BY_CODE
    ]
    rows = page["operations"][: min(int(page["num_operations"]), layout.MAX_OPERATIONS)]
    return LiveState(
        pid=int(page["pid"]),
        ended=bool(page["flags"] & layout.STATE_ENDED),
        failed=bool(page["flags"] & layout.STATE_FAILED),
        step=int(page["step"]),
        step_started_ns=int(page["step_started_ns"]),
        beat_ns=max([int(page["beat_ns"]), *(span.since_ns for span in spans)]),
        recorded=int(page["recorded"]),
        dropped=int(page["dropped"]) + int(page["dropped_before"]),
        anchor=Anchor(monotonic_ns=int(page["anchor_monotonic_ns"]), wall_ns=int(page["anchor_wall_ns"])),
        open_spans=tuple(sorted(spans, key=lambda span: span.since_ns)),
        operations=tuple(_operation(row.tolist()) for row in rows if row[3]),
        identity_ns=int(page["identity_ns"]),
    )


def _operation(row: list[int]) -> Operation:
    axes, stage, peer, issued, completed, issued_ns, completed_ns, size_bytes = row
    return Operation(
        mask=_mask(axes),
        stage=STAGE_BY_CODE.get(stage),
        peer=peer,
        issued=issued,
        completed=completed,
        issued_ns=issued_ns,
        completed_ns=completed_ns,
        size_bytes=size_bytes,
    )


def _mask(word: int) -> int:
    if word >= layout.AXES_BIAS:
        return word - layout.AXES_BIAS
    return 1 << word if 0 <= word < len(PLAIN_AXES) else 0
