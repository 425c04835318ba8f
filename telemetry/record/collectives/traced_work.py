"""The work of a traced operation: where its end is noticed, and the span ends.

tensors of the host            the work is put behind a TracedWork: its wait() or its future ends the span
CUDA, stream known             the end is recorded on the stream of the transfer at once; the work is returned as it is
CUDA, async_op=False           there is no work: NCCL runs on the current stream, and the end is recorded there at once
CUDA, stream not known         a TracedWork: the end is recorded on the current stream at wait(), after whatever was
                               put there before
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from telemetry.record.collectives.operations import Flight, Operations
from telemetry.record.recording import RECORDER
from telemetry.stages import SpanClock

MAX_POOL = 128
HIGH_PRIORITY = "TORCH_NCCL_HIGH_PRIORITY"


class StreamPool:
    """torch's pool of streams of one priority on one device: a ring that everybody draws from in turn."""

    def __init__(self, draw: Callable[[], Any]) -> None:
        """One whole turn is drawn to learn the ring, and another but one to come back to where it stood."""
        self._draw = draw
        self._ring = [draw()]
        while (stream := draw()).stream_id != self._ring[0].stream_id:
            self._ring.append(stream)
            assert len(self._ring) <= MAX_POOL
        self._place = {stream.stream_id: place for place, stream in enumerate(self._ring)}
        self._finish_turn(drawn=1)

    def note(self) -> int:
        """Draw one: the place after which :meth:`taken_since` looks."""
        return self._place[self._draw().stream_id]

    def taken_since(self, noted: int) -> list[Any]:
        """What others drew since, in order, if it was less than a turn."""
        count = (self._place[self._draw().stream_id] - noted - 1) % len(self._ring)
        self._finish_turn(drawn=2)
        return [self._ring[(noted + 1 + at) % len(self._ring)] for at in range(count)]

    def _finish_turn(self, *, drawn: int) -> None:
        for _ in range(-drawn % len(self._ring)):
            self._draw()


@dataclass(slots=True, kw_only=True, eq=False)
class Transfers:
    """The streams of one process group. Nothing here raises.

    ``peer`` is None for operations of the whole group, and for transfers in a batch. A single send or receive has a
    communicator of its own with its peer, unless the group's was made with the group.
    """

    cuda: Any
    """``torch.cuda``, or its twin in tests; None where no NCCL moves the data."""
    high_priority: bool = False
    _known: dict[tuple[int | None, int], Any] = field(default_factory=dict)

    def before(self, peer: int | None, device: int | None, *, early: bool = False) -> int | None:
        """Called ahead of an operation, or (``early``) ahead of the making of a group that is bound to the device; what
        :meth:`after` wants to know. None: there is nothing to learn."""
        if self.cuda is None or device is None or (peer, device) in self._known:
            return None
        with suppress(Exception):
            if early or (self.cuda.is_initialized() and not self.cuda.is_current_stream_capturing()):
                with self.cuda.device(device):
                    return self._pool(device).note()
        return None

    def after(self, peer: int | None, device: int | None, noted: int | None, *, early: bool = False) -> Any | None:
        """Called behind it: the stream of its transfer, where it is known."""
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
        stream = taken[0] if len(taken) == 1 else None  # of several, other threads drew at the same time
        if peer is not None and not taken:
            stream = self._known.get((None, device))
        self._known[peer, device] = stream

    def _pool(self, device: int) -> StreamPool:
        key = (id(self.cuda), device, self.high_priority)
        if key not in _pools:
            priority = self.cuda.Stream.priority_range()[1] if self.high_priority else 0
            _pools[key] = StreamPool(lambda: self.cuda.Stream(priority=priority))
        return _pools[key]


_pools: dict[tuple[int, int, bool], StreamPool] = {}


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
    """A group that is bound to a device makes its communicator, or splits its parent's, at once: what has the streams
    once the group is made."""
    device = keywords.get("device_id")
    if device is None or not RECORDER.recording():
        return None
    transfers = Transfers(cuda=torch.cuda, high_priority=wants_high_priority(keywords.get("backend_options")))
    noted = transfers.before(None, device.index, early=True)

    def after() -> Transfers:
        transfers.after(None, device.index, noted, early=True)
        return transfers

    return after


ENDING = ("wait", "synchronize", "block_current_stream")
"""Methods after which the rank, or its stream, continues."""
PASSED_ON = (
    "_get_duration", "_get_op_type", "_source_rank", "exception", "get_future_result", "is_success", "result",
    "source_rank",
)  # fmt: skip

_awaited: set["TracedWork"] = set()
"""Works whose future was asked for and that have not ended."""
_on_callback: set["TracedWork"] = set()
"""Works that a future's callback is ending at this moment, on a thread of its own."""
CALLBACK_S = 1.0
"""How long the end of a session waits for these."""


class TracedWork(dist.Work):
    """Stands in front of a Work; several flights share one where the operations were coalesced."""

    def __init__(self, inner: dist.Work, flights: Sequence[Flight], operations: Operations) -> None:
        super().__init__()
        self.inner = inner
        self._flights = flights
        self._operations = operations
        self._future: torch.futures.Future[Any] | None = None

    def is_completed(self) -> bool:
        """gloo sets the future first: whoever waits for it may come here before the work says so."""
        completed = self.inner.is_completed() or (self._future is not None and self._future.done())
        if completed:
            self.end()
        return completed

    def get_future(self) -> "torch.futures.Future[Any]":
        """The inner future itself: DDP waits on it and never on the work."""
        future = self._future = self.inner.get_future()
        _awaited.add(self)
        future.add_done_callback(lambda _: self._end_on_callback())
        return future

    def _end_on_callback(self) -> None:
        _on_callback.add(self)
        try:
            self.end()
        finally:
            _on_callback.discard(self)

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
    """End what has completed and does not know it yet: whoever waits for a future goes on before its callbacks ran, or
    while they run."""
    for work in tuple(_awaited):
        work.is_completed()
    _awaited.clear()
    deadline_s = time.monotonic() + CALLBACK_S
    while _on_callback and time.monotonic() < deadline_s:
        time.sleep(0.001)


def _ending(name: str) -> Callable[..., Any]:
    def method(self: TracedWork, *arguments: Any, **keywords: Any) -> Any:
        self.begin_wait()
        answer = getattr(self.inner, name)(*arguments, **keywords)
        self.end()
        return answer

    method.__name__ = name
    return method


def _passed_on(name: str) -> Callable[..., Any]:
    def method(self: TracedWork, *arguments: Any, **keywords: Any) -> Any:
        return getattr(self.inner, name)(*arguments, **keywords)

    method.__name__ = name
    return method


for _names, _make in ((ENDING, _ending), (PASSED_ON, _passed_on)):
    for _name in _names:
        if hasattr(dist.Work, _name):
            setattr(TracedWork, _name, _make(_name))


def follow(work: Any, flights: Sequence[Flight], operations: Operations) -> Any:
    """The work of these flights, traced; they end at once where there is none: the call has waited itself, or runs on
    the current stream of the device."""
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


def size_bytes(arguments: Any) -> int:
    """Bytes of the largest argument: what an all-gather gives, what a reduce-scatter takes."""
    return max((_tensor_bytes(argument) for argument in arguments), default=0)


def _tensor_bytes(argument: Any) -> int:
    if isinstance(argument, torch.Tensor):
        return argument.nbytes
    if isinstance(argument, list | tuple):
        return sum(_tensor_bytes(item) for item in argument)
    return 0


def cuda_device(arguments: Any) -> int | None:
    """The CUDA device of the first tensor in an operation's arguments; None where there is no such tensor, and on the
    host."""
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            return argument.device.index if argument.is_cuda else None
        if isinstance(argument, list | tuple) and argument:
            return cuda_device(argument)
    return None
