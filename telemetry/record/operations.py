"""Collectives and transfers: their numbers, and where each group stands, on the state page.

Members of a group issue its operations in one order, so counting on each rank gives the same number to the same
operation everywhere: ``(group, op_seq)`` for a collective, ``(direction, pair, op_seq)`` for a transfer. Groups of the
same ranks share one count: a job may hold several.
"""

from dataclasses import dataclass
from time import monotonic_ns
from typing import Any

from telemetry.clocks.interface import DeviceSpan
from telemetry.record import layout
from telemetry.record.sink import Recorder
from telemetry.stages import Stage
from telemetry.topology import AXES, Axis


@dataclass(slots=True, kw_only=True, eq=False)
class Line:
    """What is counted together: the collectives of a group, or the transfers of one direction with one peer."""

    axis: Axis | None
    peer: int
    """-1: a group's collectives."""
    row: int
    """Place on the state page."""
    issued: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Flight:
    """An operation that was issued and has not ended."""

    line: Line
    stage: Stage | None
    op_seq: int
    start_ns: int
    step: int
    size_bytes: int
    microbatch: int
    chunk: int
    ticket: Any = None
    ended: bool = False


class Operations:
    """Numbers operations and records a span for each that has a stage. Ends may come from any thread."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._lines: dict[tuple[object, ...], Line] = {}

    def line(
        self, ranks: tuple[int, ...], axis: Axis | None, *, peer: int = -1, direction: Stage | None = None
    ) -> Line:
        """The one line of these operations."""
        key = (ranks, axis, peer, direction)
        return self._lines.setdefault(key, Line(axis=axis, peer=peer, row=len(self._lines)))

    def issue(
        self, line: Line, stage: Stage | None, size_bytes: int, *, microbatch: int = -1, chunk: int = -1
    ) -> Flight:
        """Number an operation that is about to be issued."""
        line.issued += 1
        flight = Flight(
            line=line,
            stage=stage,
            op_seq=line.issued,
            start_ns=monotonic_ns(),
            step=self._recorder.current_step(),
            size_bytes=size_bytes,
            microbatch=microbatch,
            chunk=chunk,
        )
        self._show_issued(flight)
        if stage is not None and self._recorder.on_device():
            flight.ticket = self._recorder.begin_on_device()
        return flight

    def wait_for(self, flight: Flight) -> None:
        """The rank now waits for the end of an operation."""
        if flight.stage is not None and not flight.ended:
            self._recorder.words()[layout.WORD_OPEN_SINCE + flight.stage] = monotonic_ns()

    def end(self, flight: Flight) -> None:
        """The rank knows that the operation has ended. Only the first call counts."""
        if flight.ended:
            return
        flight.ended = True
        now = monotonic_ns()
        self._show_ended(flight, now)
        if flight.stage is not None:
            self._record(flight, flight.stage, now)

    def _record(self, flight: Flight, stage: Stage, now: int) -> None:
        details = {
            "step": flight.step,
            "microbatch": flight.microbatch,
            "chunk": flight.chunk,
            "size_bytes": flight.size_bytes,
            "peer": flight.line.peer,
            "op_seq": flight.op_seq,
        }
        if self._recorder.on_device():
            self._recorder.end_on_device(flight.ticket, DeviceSpan(stage=stage, issue_ns=flight.start_ns, **details))
        else:
            self._recorder.record_span(stage, flight.start_ns, now - flight.start_ns, **details)

    def _show_issued(self, flight: Flight) -> None:
        line = flight.line
        if line.row >= layout.MAX_OPERATIONS:
            return
        words, first = self._recorder.words(), layout.WORD_OPERATIONS + line.row * layout.OPERATION_WORDS
        words[first] = -1 if line.axis is None else AXES.index(line.axis)
        words[first + 1] = 0 if flight.stage is None else flight.stage
        words[first + 2] = line.peer
        words[first + 5] = flight.start_ns
        words[first + 7] = flight.size_bytes
        words[first + 3] = flight.op_seq
        words[layout.WORD_NUM_OPERATIONS] = min(len(self._lines), layout.MAX_OPERATIONS)

    def _show_ended(self, flight: Flight, now: int) -> None:
        words = self._recorder.words()
        if flight.stage is not None:
            words[layout.WORD_OPEN_SINCE + flight.stage] = 0
        if flight.line.row < layout.MAX_OPERATIONS:
            first = layout.WORD_OPERATIONS + flight.line.row * layout.OPERATION_WORDS
            words[first + 6] = now
            words[first + 4] = max(words[first + 4], flight.op_seq)
