"""The end of a traced operation: where it is noticed, and on which CUDA stream it is recorded.

tensors of the host            the work is wrapped in a TracedWork: its wait() or its future ends the span
CUDA, stream known             the end is recorded on the stream of the transfer at once; the work is returned as it is
CUDA, async_op=False           there is no work: NCCL runs on the current stream, and the end is recorded there at once
CUDA, stream not known         a TracedWork: the end is recorded on the current stream at wait(), after all earlier work

The stream on which an NCCL communicator moves data is found by drawing streams around the first operation of a group:

    draw ------- communicator is made: torch draws one stream for it ------- draw
      i                          i + 1                                 i + 2

torch's ProcessGroupNCCL takes a communicator's stream out of torch's pool, in turn, when it makes the communicator, and
keeps it. So it is the one between the two streams that are drawn here. The rest of the turn is drawn too, so that later
streams of the program are the same as without tracing. An event there adds no edge between streams.

The future of the work is not used, because it has side effects. Its callbacks run on a stream of the pool that is made
to wait, although it may be a stream of the program or of another communicator. The outputs are recorded on that stream,
which delays their reuse. Under a graph capture that stream would join the graph. Coalesced works have no future at all,
and asking for one ends the process. (ivalue_inl.h ``invokeCallback``, ProcessGroupNCCL.cpp ``endCoalescing``)
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from telemetry.record.collectives.operations import Flight, Operations
from telemetry.record.collectives.torch_groups import add_methods, to_inner
from telemetry.record.recording import RECORDER
from telemetry.stages import SpanClock

ENDING = ("wait", "synchronize", "block_current_stream")
"""Methods after which the rank, or its stream, continues."""
PASSED_ON = (
    "_get_duration", "_get_op_type", "_source_rank", "exception", "get_future_result", "is_success", "result",
    "source_rank",
)  # fmt: skip

_awaited: set["TracedWork"] = set()
"""Works whose future was asked for and that have not ended."""
_callbacks: WeakKeyDictionary[Callable[..., None], "torch.futures.Future[Any]"] = WeakKeyDictionary()
"""Callbacks that torch has not released, and their futures."""
CALLBACK_S = 1.0
"""How long the end of a session, or of a group, waits for these callbacks."""
MAX_POOL = 128
HIGH_PRIORITY = "TORCH_NCCL_HIGH_PRIORITY"
_pools: dict[tuple[int, int, bool], "StreamPool"] = {}


class TracedWork(dist.Work):
    """Wraps a Work. Coalesced operations share one work."""

    def __init__(self, inner: dist.Work, flights: Sequence[Flight], operations: Operations) -> None:
        super().__init__()
        self.inner = inner
        self._flights = flights
        self._operations = operations
        self._future: torch.futures.Future[Any] | None = None

    def is_completed(self) -> bool:
        """Whether the work has completed. gloo completes the future before the work."""
        completed = self.inner.is_completed() or (self._future is not None and self._future.done())
        if completed:
            self.end()
        return completed

    def get_future(self) -> "torch.futures.Future[Any]":
        """The inner future itself: DDP waits on it and never on the work."""
        future = self._future = self.inner.get_future()
        _awaited.add(self)

        def end_on_callback(_: object) -> None:
            self.end()

        _callbacks[end_on_callback] = future
        future.add_done_callback(end_on_callback)
        return future

    def begin_wait(self) -> None:
        with suppress(Exception):  # nothing that tracing does may stop a wait
            for flight in self._flights:
                self._operations.wait_for(flight)

    def end(self) -> None:
        with suppress(Exception):
            for flight in self._flights:
                self._operations.end(flight)
        _awaited.discard(self)


def end_completed() -> None:
    """End the spans of completed works. Code that waits for a future continues before its callbacks have run."""
    for work in tuple(_awaited):
        work.is_completed()
    _awaited.clear()
    release_callbacks()


def release_callbacks() -> None:
    """Wait until torch has called and released the callbacks of completed works, for a bounded time.

    gloo does both on a separate thread, which needs the GIL. A group that is destroyed waits for that thread while it
    holds the GIL: the process would never end.
    """
    deadline_s = time.monotonic() + CALLBACK_S
    while _has_callbacks() and time.monotonic() < deadline_s:
        time.sleep(0.001)


def _has_callbacks() -> bool:
    """Whether torch still holds the callback of a completed work."""
    try:
        return any(future.done() for future in tuple(_callbacks.values()))
    except RuntimeError:  # another thread has added a callback meanwhile
        return True


def _ending(name: str) -> Callable[..., Any]:
    def method(self: TracedWork, *arguments: Any, **keywords: Any) -> Any:
        self.begin_wait()
        answer = getattr(self.inner, name)(*arguments, **keywords)
        self.end()
        return answer

    return method


add_methods(TracedWork, dist.Work, {name: _ending(name) for name in ENDING})
add_methods(TracedWork, dist.Work, {name: to_inner(name) for name in PASSED_ON})


def follow(work: Any, flights: Sequence[Flight], operations: Operations) -> Any:
    """The traced work of these flights. Without a work they end at once: the call has waited itself, or runs on the
    current stream of the device."""
    if not flights:
        return work
    if work is not None:
        return TracedWork(work, flights, operations)
    end_transfers(flights, operations)
    return None


def end_transfers(flights: Sequence[Flight], operations: Operations) -> None:
    """End flights whose transfers end here on the current stream."""
    with suppress(Exception):
        for flight in flights:
            operations.end(flight, clock=SpanClock.TRANSFER, alone=len(flights) == 1)


def withdraw(flights: Sequence[Flight], operations: Operations, error: Exception | None = None) -> None:
    """The call of these operations raised an error, so they were not issued. An error of the communication may come
    after the issue: then they stay pending, because peers may wait in them."""
    with suppress(Exception):
        for flight in [] if isinstance(error, dist.DistError) else reversed(flights):
            operations.withdraw(flight)


class StreamPool:
    """torch's pool of streams of one priority on one device: a ring from which all code draws in turn."""

    def __init__(self, draw: Callable[[], Any]) -> None:
        """Draws one whole turn to learn the ring, and another one less a stream to return to the same position."""
        self._draw = draw
        self._ring = [draw()]
        while (stream := draw()).stream_id != self._ring[0].stream_id:
            self._ring.append(stream)
            assert len(self._ring) <= MAX_POOL
        self._place = {stream.stream_id: place for place, stream in enumerate(self._ring)}
        self._finish_turn(drawn=1)

    def note(self) -> int:
        """Draw one stream. Returns its position, for :meth:`taken_since`."""
        return self._place[self._draw().stream_id]

    def taken_since(self, noted: int) -> list[Any]:
        """The streams that other code has drawn since, in order, if less than a turn."""
        count = (self._place[self._draw().stream_id] - noted - 1) % len(self._ring)
        self._finish_turn(drawn=2)
        return [self._ring[(noted + 1 + at) % len(self._ring)] for at in range(count)]

    def _finish_turn(self, *, drawn: int) -> None:
        for _ in range(-drawn % len(self._ring)):
            self._draw()


@dataclass(slots=True, kw_only=True, eq=False)
class Transfers:
    """The streams of one process group. The methods do not raise.

    ``peer`` is None for operations of the whole group, and for transfers in a batch. A single send or receive has a
    communicator of its own with its peer, unless the communicator of the group was made together with the group.
    """

    cuda: Any
    """``torch.cuda``, or its twin in tests; None if NCCL does not move the data."""
    high_priority: bool = False
    _known: dict[tuple[int | None, int], Any] = field(default_factory=dict)

    def before(self, peer: int | None, device: int | None, *, early: bool = False) -> int | None:
        """Call before an operation, or (``early``) before a group that is bound to the device is made. The result is an
        argument of :meth:`after`. It is None if there is nothing to learn."""
        if self.cuda is None or device is None or (peer, device) in self._known:
            return None
        with suppress(Exception):
            if early or (self.cuda.is_initialized() and not self.cuda.is_current_stream_capturing()):
                with self.cuda.device(device):
                    return self._pool(device).note()
        return None

    def after(self, peer: int | None, device: int | None, noted: int | None, *, early: bool = False) -> Any | None:
        """Call after the operation. Returns the stream of its transfer, if it is known."""
        if self.cuda is None or device is None:
            return None
        with suppress(Exception):
            if noted is not None:
                self._learn(peer, device, noted, early=early)
            return self._known.get((peer, device))
        return None

    def _learn(self, peer: int | None, device: int, noted: int, *, early: bool) -> None:
        with self.cuda.device(device):
            taken = self._pool(device).taken_since(noted)
        if early and not taken:
            return  # the communicator will be made later
        stream = taken[0] if len(taken) == 1 else None  # several: another thread drew too
        if peer is not None and not taken:
            stream = self._known.get((None, device))
        self._known[peer, device] = stream

    def _pool(self, device: int) -> StreamPool:
        key = (id(self.cuda), device, self.high_priority)
        if key not in _pools:
            priority = self.cuda.Stream.priority_range()[1] if self.high_priority else 0
            _pools[key] = StreamPool(lambda: self.cuda.Stream(priority=priority))
        return _pools[key]


def wants_high_priority(options: Any) -> bool:
    """Whether NCCL takes its streams from the pool of high priority, by its options and the environment."""
    forced = os.environ.get(HIGH_PRIORITY, "").lower() in ("1", "y", "yes", "t", "true")
    return forced or bool(getattr(options, "is_high_priority_stream", False))


def transfers_of(inner: dist.ProcessGroup) -> Transfers:
    for device in inner._device_types:
        backend = inner._get_backend(device)
        backend = getattr(backend, "wrapped_pg", backend)
        if device.type == "cuda" and backend.name() == dist.Backend.NCCL:
            return Transfers(cuda=torch.cuda, high_priority=wants_high_priority(backend.options))
    return Transfers(cuda=None)


def before_group(keywords: dict[str, Any]) -> Callable[[], Transfers] | None:
    """A function that returns the streams after a group is made; None unless the group is bound to a device. Such a
    group makes or splits a communicator at once."""
    device = keywords.get("device_id")
    if device is None or not RECORDER.recording():
        return None
    transfers = Transfers(cuda=torch.cuda, high_priority=wants_high_priority(keywords.get("backend_options")))
    noted = transfers.before(None, device.index, early=True)

    def after() -> Transfers:
        transfers.after(None, device.index, noted, early=True)
        return transfers

    return after
