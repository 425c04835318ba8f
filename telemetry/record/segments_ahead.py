"""Makes segments before they are needed, in a thread of its own: making one allocates room on a disk that may be slow.

recorder   |---- segment 4 ----|---- segment 5 ----|---        takes the prepared segment: microseconds
maker       makes 5             makes 6             ...        waits for the disk
"""

import threading
from queue import SimpleQueue

from telemetry.record.rank_file import RankFile, Segment

PATIENCE_S = 0.02
"""What the recording thread waits for a segment that is being made, once; after that it drops and counts."""

STOP_S = 1.0


class SegmentsAhead:
    """A ``Sink`` over a rank file. The first segment is made at once, each later one while the one before it fills."""

    def __init__(self, rank_file: RankFile, *, patience_s: float = PATIENCE_S) -> None:
        self._rank_file = rank_file
        self._patience_s = patience_s
        self._wanted: SimpleQueue[int | None] = SimpleQueue()
        self._made = threading.Event()
        self._ready: Segment | None = None
        self._late = False
        self._maker = threading.Thread(target=self._make, name="rankscope-segments", daemon=True)

    @property
    def dropped(self) -> int:
        """Records lost with segments that were removed to make room."""
        return self._rank_file.dropped

    def open_segment(self, first_seq: int) -> Segment | None:
        """The segment that lies ready; None when it is late or could not be made: a call soon after may have it."""
        if not self._maker.ident:
            self._maker.start()
            return self._hand_out(self._rank_file.make(first_seq), first_seq)
        if not self._made.wait(0 if self._late else self._patience_s):
            self._late = True
            return None
        self._late = False
        segment, self._ready = self._ready, None
        return self._hand_out(segment, first_seq)

    def stop(self) -> None:
        """Make no more, and remove what was made for later."""
        self._wanted.put(None)
        self._maker.join(STOP_S)
        if self._ready is not None:
            self._rank_file.discard(self._ready)

    def close(self, next_seq: int) -> None:
        """Seal the last segment at ``next_seq``.

        Raises:
            OSError, UnreadableError: it is gone.
        """
        self._rank_file.close(next_seq)

    def _hand_out(self, segment: Segment | None, first_seq: int) -> Segment | None:
        self._made.clear()
        if segment is not None:
            self._rank_file.seal_and_go_on_in(segment)
        self._wanted.put(first_seq if segment is None else segment.end_seq)
        return segment

    def _make(self) -> None:
        while (first_seq := self._wanted.get()) is not None:
            self._ready = self._rank_file.make(first_seq)
            self._made.set()
