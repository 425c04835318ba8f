"""What a rank and its agent tell each other about shipping: one small page, mapped from the file ``shipping``.

    rank, as it makes a segment                   page                        agent, as it ships
    moves the oldest one out of sight
    is it in flight? back with it     <----   acked ... sending   <----   pins a segment, and only then reads it
    else says why, and deletes it     ---->   lost_below[cause]   ---->   tells of the hole that it meets

Both sides write before they look, so no record is shipped and counted as lost: either the rank sees the pin, or the
agent does not see the segment. Nobody waits for the other, whoever is killed or stopped in between. Each word is stored
whole; room for the page is allocated when it is made, so a full disk does not keep the agent from acknowledging.
"""

import mmap
import os
from enum import IntEnum
from pathlib import Path

from telemetry.record import layout

FILE_NAME = "shipping"


class LossCause(IntEnum):
    """Why a segment was deleted that nobody had acknowledged."""

    CAP = 0
    DISK_FULL = 1


class ShippingPage:
    """The page of one rank's folder, made where it is missing.

    Raises:
        OSError: it can be neither opened nor made.
    """

    def __init__(self, folder: Path) -> None:
        fd = os.open(folder / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(fd, 0, layout.SHIPPING_BYTES)
            self._words = memoryview(mmap.mmap(fd, layout.SHIPPING_BYTES)).cast("q")
        finally:
            os.close(fd)
        self._words[0] = layout.SHIPPING_MAGIC

    @property
    def acked(self) -> int:
        """The number of the next record to ship."""
        return self._words[layout.WORD_ACKED]

    @property
    def acked_ns(self) -> int:
        """Wall clock of the last record that is known to be stored; 0 before the first."""
        return self._words[layout.WORD_ACKED_NS]

    @property
    def sending(self) -> int:
        """One past the last record that was ever sent, or is about to be read."""
        return self._words[layout.WORD_SENDING]

    def pin(self, end_seq: int) -> None:
        """Records below ``end_seq`` that are not acknowledged may be in flight: the rank deletes none of them. Never go
        below what was sent once: a smaller batch may be acknowledged before a larger one is known to be stored."""
        self._words[layout.WORD_SENDING] = end_seq

    def acknowledge(self, next_seq: int, at_ns: int = 0) -> None:
        """Records below ``next_seq`` are stored, and the last of them is of ``at_ns``."""
        self._words[layout.WORD_ACKED_NS] = at_ns or self.acked_ns
        self._words[layout.WORD_ACKED] = next_seq

    def in_flight(self, first_seq: int, end_seq: int) -> bool:
        """Whether any of these records may be on their way: sent, and not known to be stored."""
        return max(first_seq, self.acked) < min(end_seq, self.sending)

    def lose(self, end_seq: int, cause: LossCause) -> None:
        """A segment that ends here is being deleted."""
        self._words[layout.WORD_LOST_BELOW + cause] = end_seq

    def causes(self, first_seq: int) -> list[LossCause]:
        """Why the rank has deleted records from ``first_seq`` on; nothing where it has not."""
        return [cause for cause in LossCause if self._words[layout.WORD_LOST_BELOW + cause] > first_seq]


def read_acked(folder: Path) -> int:
    """The number of the next record to ship, by the agent's last word; 0 where it has said none."""
    try:
        with (folder / FILE_NAME).open("rb") as file:
            raw = file.read(8 * (layout.WORD_ACKED + 1))
    except OSError:
        return 0
    words = memoryview(raw[: len(raw) // 8 * 8]).cast("q")
    return words[layout.WORD_ACKED] if len(words) and words[0] == layout.SHIPPING_MAGIC else 0
