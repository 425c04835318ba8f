"""The work of a traced operation: where its end is noticed, and the span ends.

tensors of the host            the work is put behind a TracedWork: its wait() or its future ends the span
CUDA, stream known             the end is recorded on the stream of the transfer at once; the work is returned as it is
CUDA, async_op=False           there is no work: NCCL runs on the current stream, and the end is recorded there at once
CUDA, stream not known         a TracedWork: the end is recorded on the current stream at wait(), after whatever was
                               put there before
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist

from telemetry.record.collectives.operations import Flight, Operations
from telemetry.stages import SpanClock

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
