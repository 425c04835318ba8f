"""Coordinates a rank and its agent while records are shipped: one small page of words, the file ``shipping``.

    rank, when it makes a segment                 page                        agent, when it ships
    renames the oldest segment
    is it in flight? rename it back   <----   acked ... sending   <----   pins a segment, and only then reads it
    else records why, and deletes it  ---->   lost_below[cause]   ---->   reports the missing records

Both sides write before they read, so no record is both shipped and counted as lost: either the rank sees the pin, or
the agent does not see the segment. Neither waits for the other, even if it was killed or stopped in between. Each word
is stored whole. Room for the page is allocated when it is made, so the agent can acknowledge on a full disk.

The page is read and written by system calls, not mapped: a truncated file must not end the agent.
"""

import os
import weakref
from enum import IntEnum
from pathlib import Path

from telemetry.files.private_files import open_folder
from telemetry.record import layout
from telemetry.record.layout import RANK_FOLDER_DEPTH

FILE_NAME = "shipping"
WORD_BYTES = 8


class LossCause(IntEnum):
    """Why a segment was deleted before it was acknowledged."""

    CAP = 0
    DISK_FULL = 1


class ShippingPage:
    """The page of one rank's folder. It is created if it is missing.

    Raises:
        OSError: it cannot be opened or created.
    """

    def __init__(self, folder: Path) -> None:
        with open_folder(folder, below=RANK_FOLDER_DEPTH) as opened:
            self._descriptor = opened.open(FILE_NAME, os.O_RDWR | os.O_CREAT)
        # A rank that ends still uses the page: Python must not close it before the rank's own handler of the exit runs.
        weakref.finalize(self, os.close, self._descriptor).atexit = False
        os.posix_fallocate(self._descriptor, 0, layout.SHIPPING_BYTES)
        self._put(0, layout.SHIPPING_MAGIC)

    @property
    def acked(self) -> int:
        """The number of the next record to ship."""
        return self._word(layout.WORD_ACKED)

    @property
    def acked_ns(self) -> int:
        """Time of the last record that is known to be stored; 0 before the first."""
        return self._word(layout.WORD_ACKED_NS)

    @property
    def sending(self) -> int:
        """One past the last record that was sent, or is about to be read."""
        return self._word(layout.WORD_SENDING)

    @property
    def opened_ns(self) -> int:
        """The time at which the folder was opened, as the agent corrected it; 0 if it was not corrected."""
        return self._word(layout.WORD_OPENED)

    def correct_opening(self, opened_ns: int) -> None:
        """Correct the time at which the rank opened the folder, because the clock of its host was far ahead."""
        self._put(layout.WORD_OPENED, opened_ns)

    def pin(self, end_seq: int) -> None:
        """Records below ``end_seq`` that are not acknowledged may be in flight: the rank keeps them. Never pin less
        than was sent: a smaller batch may be acknowledged before a larger one is known to be stored."""
        self._put(layout.WORD_SENDING, end_seq)

    def begin(self) -> None:
        """Reset the page for a new folder: no record is sent, stored or lost yet."""
        os.pwrite(self._descriptor, bytes(layout.SHIPPING_BYTES - WORD_BYTES), WORD_BYTES)

    def acknowledge(self, next_seq: int, at_ns: int = 0) -> None:
        """Records below ``next_seq`` are stored. ``at_ns`` is the time of the last one."""
        self._put(layout.WORD_ACKED_NS, at_ns or self.acked_ns)
        self._put(layout.WORD_ACKED, next_seq)

    def in_flight(self, first_seq: int, end_seq: int) -> bool:
        """Whether any of these records was sent and is not known to be stored."""
        return max(first_seq, self.acked) < min(end_seq, self.sending)

    def lose(self, end_seq: int, cause: LossCause) -> None:
        """Note that the rank deletes a segment that ends at ``end_seq``."""
        self._put(layout.WORD_LOST_BELOW + cause, end_seq)

    def causes(self, first_seq: int) -> list[LossCause]:
        """Why the rank has deleted records from ``first_seq`` on. Empty if it has not."""
        return [cause for cause in LossCause if self._word(layout.WORD_LOST_BELOW + cause) > first_seq]

    def _word(self, number: int) -> int:
        """The value of a word; 0 if the file was truncated."""
        raw = os.pread(self._descriptor, WORD_BYTES, WORD_BYTES * number)
        return int.from_bytes(raw, "little", signed=True) if len(raw) == WORD_BYTES else 0

    def _put(self, number: int, value: int) -> None:
        os.pwrite(self._descriptor, value.to_bytes(WORD_BYTES, "little", signed=True), WORD_BYTES * number)


def read_acked(folder: Path) -> int:
    """The number of the next record to ship, as last acknowledged; 0 if none is."""
    try:
        with open_folder(folder, below=RANK_FOLDER_DEPTH) as opened:
            raw = opened.read(FILE_NAME, WORD_BYTES * (layout.WORD_ACKED + 1))
    except OSError:
        return 0
    words = memoryview(raw[: len(raw) // 8 * 8]).cast("q")
    return words[layout.WORD_ACKED] if len(words) and words[0] == layout.SHIPPING_MAGIC else 0
