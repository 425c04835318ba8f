"""The seam between what is drawn and the form it is written in.

Two implementations: ``json_trace.JsonTrace`` and ``protobuf_trace.ProtobufTrace``. What they are given is kept as it is
by the drawings themselves, so tests need no third.
"""

from typing import Protocol

from diagnose.trace.drawing import RankDrawing, RunDrawing


class Trace(Protocol):
    """A trace in the making, on a binary file that somebody else opens and closes. Every method may block.

    Raises:
        OSError: from every method, when the file takes no more.
    """

    def add_run(self, run: RunDrawing) -> None:
        """Write what belongs to no rank. Comes first, and once."""

    def add_rank(self, rank: RankDrawing) -> None:
        """Write a rank."""

    def end(self) -> None:
        """Write what makes the trace whole."""
