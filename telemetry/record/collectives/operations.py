"""Collectives and transfers: their numbers, and the progress of each group on the state page.

Members of a group issue its operations in the same order. So each rank can count them, and the same operation has the
same number everywhere: ``(group, op_seq)`` for a collective, ``(direction, pair, op_seq)`` for a transfer. A job may
have several groups of the same ranks; they share one count.

On the host, an operation that the rank does not wait for at once is asynchronous. A second span,
``communication-wait``, shows the part in which the rank waits for it. Both end at the same time, and have the same
``peer``.

    forward-send         |------------------------------------|      issue ... return of wait()
    communication-wait                                  |-----|      the rank computes before, and is blocked here

On a device the host only issues an operation. It is then followed on the device's clock, with or without a stage:
"completed" on the state page means that the device has done it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic_ns
from typing import Any

from telemetry.group_names import NO_PEER, peer_of_mask
from telemetry.record import layout
from telemetry.record.clocks.interface import DeviceSpan
from telemetry.record.recorder import Recorder
from telemetry.stages import SpanClock, Stage


@dataclass(slots=True, kw_only=True, eq=False)
class Line:
    """Operations with one count: the collectives of a group, or the transfers of one direction with one peer."""

    mask: int
    """Bit mask of the mesh axes along which the group lies; 0 if not known."""
    name: int
    """``peer`` of the spans of a group while the mesh is not known."""
    peer: int
    """Global rank of the peer of transfers; -1 for collectives."""
    stage: Stage | None
    """Stage of the transfers. None for collectives, which have several stages."""
    row: int
    """Position on the state page."""
    issued: int = 0
    newest: tuple[int, int, int] = (0, 0, 0)
    """Stage, start and size of the newest operation, as on the state page."""


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
    on_device: bool = False
    ticket: Any = None
    ended: bool = False
    wait_ns: int = 0
    """When the rank began to wait for the operation; 0 if it has not waited."""
    before: tuple[int, int, int] = (0, 0, 0)
    """``newest`` of the line before this operation."""


LEAST_ASYNCHRONOUS_NS = 500_000
"""If a rank waits for an operation within this time after its issue, the operation does not count as asynchronous."""


class Operations:
    """Numbers operations and records a span for each that has a stage. Ends may come from any thread.

    Spans hold the mask of a group if ``mesh_is_final``, because a mask means other axes after the mesh has changed.
    Until then they hold the axes of its description (``telemetry/group_names.py``).
    """

    def __init__(self, recorder: Recorder, mesh_is_final: Callable[[], bool] = lambda: True) -> None:
        self._recorder = recorder
        self._mesh_is_final = mesh_is_final
        self._lines: dict[tuple[object, ...], Line] = {}
        self.num_issued = 0
        """Number of operations that were issued on all lines."""

    def line(
        self,
        ranks: tuple[int, ...],
        mask: int,
        *,
        peer: int = NO_PEER,
        direction: Stage | None = None,
        name: int = NO_PEER,
    ) -> Line:
        """The line of these operations. It is created if it is new."""
        key = (ranks, peer, direction)
        new = Line(mask=mask, name=name, peer=peer, stage=direction, row=len(self._lines))
        line = self._lines.setdefault(key, new)
        if line.name == NO_PEER:
            line.name = name
        if line.mask != mask:
            self._relabel(line, mask)
        return line

    def issue(
        self,
        line: Line,
        stage: Stage | None,
        size_bytes: int,
        *,
        microbatch: int = -1,
        chunk: int = -1,
        on_device: bool = True,
    ) -> Flight:
        """Number an operation that is about to be issued. ``on_device`` is False if its tensors are in host memory."""
        line.issued += 1
        self.num_issued += 1
        flight = Flight(
            line=line,
            stage=stage,
            op_seq=line.issued,
            start_ns=monotonic_ns(),
            step=self._recorder.step_number,
            size_bytes=size_bytes,
            microbatch=microbatch,
            chunk=chunk,
            on_device=on_device and self._recorder.on_device(),
            before=line.newest,
        )
        line.newest = (0 if stage is None else stage, flight.start_ns, size_bytes)
        self._show_issued(line)
        if flight.on_device:
            flight.ticket = self._recorder.begin_on_device()
        return flight

    def withdraw(self, flight: Flight) -> None:
        """The operation was not issued, because its call raised an error. The next operation gets its number. Does
        nothing if the next operation was issued already."""
        line = flight.line
        if flight.ended or line.issued != flight.op_seq:
            return
        flight.ended = True
        line.issued -= 1
        self.num_issued -= 1
        line.newest = flight.before
        self._show_issued(line)
        if flight.ticket is not None:  # the clock needs an end: it follows a span without a stage, and records nothing
            span = DeviceSpan(stage=None, issue_ns=flight.start_ns, step=flight.step)
            self._recorder.end_on_device(flight.ticket, span)

    def wait_for(self, flight: Flight) -> None:
        """The rank now waits for the end of an operation."""
        if flight.ended:
            return
        now = monotonic_ns()
        flight.wait_ns = flight.wait_ns or now
        if flight.stage is not None:
            self._recorder.words[layout.WORD_OPEN_SINCE + flight.stage] = now

    def end(self, flight: Flight, *, clock: SpanClock = SpanClock.DEVICE, alone: bool = True) -> None:
        """The operation has ended. On a device it ends at this point of the current stream. Only the first call counts.

        ``clock`` says how a device measures it: on the stream of the transfer, or on the stream that has waited for it.

        A transfer does not start before the previous one on the same line has ended: the drain thread moves the start
        of its span there. ``issue_ns`` keeps the time of the issue. Coalesced operations are not ``alone``: they run at
        the same time.
        """
        if flight.ended:
            return
        flight.ended = True
        now = monotonic_ns()
        if flight.stage is not None:
            self._recorder.words[layout.WORD_OPEN_SINCE + flight.stage] = 0
        if flight.ticket is not None:
            self._recorder.end_on_device(flight.ticket, self._device_span(flight, clock, alone))
            return
        self._show_completed(flight)
        if flight.stage is None:
            return
        if flight.on_device:
            # The clock had no room. The span counts as dropped.
            self._recorder.end_on_device(None, self._device_span(flight, clock, alone))
            return
        self._recorder.record_span(flight.stage, flight.start_ns, now - flight.start_ns, **self._details(flight))
        if clock is not SpanClock.TRANSFER:  # the rank got a work, so it could do something else before the end
            self._record_wait(flight, now)

    def _record_wait(self, flight: Flight, end_ns: int) -> None:
        """Record the wait for an asynchronous operation. If its end was noticed without a wait, the wait is empty."""
        begin_ns = flight.wait_ns or end_ns
        if begin_ns - flight.start_ns >= LEAST_ASYNCHRONOUS_NS:
            details = self._details(flight) | {"size_bytes": 0, "op_seq": 0}
            self._recorder.record_span(Stage.COMMUNICATION_WAIT, begin_ns, end_ns - begin_ns, **details)

    def _device_span(self, flight: Flight, clock: SpanClock, alone: bool) -> DeviceSpan:
        return DeviceSpan(
            stage=flight.stage,
            issue_ns=flight.start_ns,
            clock=clock,
            line=flight.line if alone and clock is SpanClock.TRANSFER else None,
            on_completed=partial(self._show_completed, flight),
            **self._details(flight),
        )

    def _details(self, flight: Flight) -> dict[str, Any]:
        line, peer = flight.line, flight.line.peer
        if peer < 0:
            peer = peer_of_mask(line.mask) if self._mesh_is_final() else line.name
        names = ("step", "microbatch", "chunk", "size_bytes", "op_seq")
        return {"peer": peer, **{name: getattr(flight, name) for name in names}}

    def _relabel(self, line: Line, mask: int) -> None:
        line.mask = mask
        if line.issued and line.row < layout.MAX_OPERATIONS:
            self._recorder.words[_first_word(line)] = _axes_word(mask)

    def _show_issued(self, line: Line) -> None:
        """Show the newest operation of a line."""
        if line.row >= layout.MAX_OPERATIONS:
            return
        words, first = self._recorder.words, _first_word(line)
        words[first] = _axes_word(line.mask)
        words[first + 1], words[first + 5], words[first + 7] = line.newest
        words[first + 2] = line.peer
        words[first + 3] = line.issued
        words[layout.WORD_NUM_OPERATIONS] = min(len(self._lines), layout.MAX_OPERATIONS)

    def _show_completed(self, flight: Flight) -> None:
        if flight.line.row < layout.MAX_OPERATIONS:
            words, first = self._recorder.words, _first_word(flight.line)
            words[first + 6] = monotonic_ns()
            words[first + 4] = max(words[first + 4], flight.op_seq)


def _first_word(line: Line) -> int:
    return layout.WORD_OPERATIONS + line.row * layout.OPERATION_WORDS


def _axes_word(mask: int) -> int:
    return layout.AXES_BIAS + mask if mask else -1
