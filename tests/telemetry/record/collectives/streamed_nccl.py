"""CUDA streams and NCCL in memory, in time moved by hand, with the semantics of torch's ProcessGroupNCCL.

Work of a stream runs in order. A communicator is created at the first operation of a group, or of a pair of ranks. It
then takes its stream from torch's pool, a ring that all users share. A transfer waits for the current stream and for
the previous transfer of its communicator. ``wait()`` makes the current stream wait. With ``async_op=False``, a transfer
runs on the current stream and has no work. The operations of a batch run at its end, and the batch has a work without a
future.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from telemetry.record.clocks.interface import DeviceSpan, ResolvedSpan

STREAMS = 32


class Stream:
    """The part of ``torch.cuda.Stream`` that is used. ``done_ns``: when all work of the stream has run."""

    def __init__(self, stream_id: int) -> None:
        self.stream_id = stream_id
        self.done_ns = 0

    def put(self, cuda: "StreamedCuda", for_ns: int, *, after_ns: int = 0) -> int:
        self.done_ns = max(self.done_ns, cuda.now_ns, after_ns) + for_ns
        return self.done_ns


class StreamedCuda:
    """The part of ``torch.cuda`` that is used."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000
        self.capturing = False
        self.current = Stream(0)
        self._ring = [Stream(32 * at + 3) for at in range(1, STREAMS + 1)]
        self._next = 7

    def Stream(self, *, priority: int = 0) -> Stream:
        assert priority == 0
        stream = self._ring[self._next % STREAMS]
        self._next += 1
        return stream

    def compute(self, for_ns: int) -> None:
        self.current.put(self, for_ns)

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def device(self, index: int) -> Iterator[None]:
        assert index == 0
        yield

    def is_initialized(self) -> bool:
        return True

    def is_current_stream_capturing(self) -> bool:
        return self.capturing


class StreamedClock:
    """A ``DeviceClock`` of that device."""

    def __init__(self, cuda: StreamedCuda) -> None:
        self._cuda = cuda
        self.ended: list[DeviceSpan] = []
        self._running: list[ResolvedSpan] = []

    def begin(self) -> int:
        return max(self._cuda.current.done_ns, self._cuda.now_ns)

    def end(self, ticket: int, span: DeviceSpan) -> None:
        self.ended.append(span)
        end_ns = max(self._cuda.current.done_ns, self._cuda.now_ns)
        self._running.append(ResolvedSpan(span=span, start_ns=ticket, duration_ns=end_ns - ticket))

    def drain(self) -> list[ResolvedSpan]:
        now_ns = self._cuda.now_ns
        done = [span for span in self._running if span.start_ns + span.duration_ns <= now_ns]
        self._running = [span for span in self._running if span not in done]
        return done

    def pending(self) -> int:
        return len(self._running)

    def device_uuid(self) -> str:
        return ""


class NcclWork(dist.Work):
    """A work whose future must not be used: callbacks would make a stream of the pool wait for the transfer."""

    def __init__(self, cuda: StreamedCuda, end_ns: int) -> None:
        super().__init__()
        self._cuda, self._end_ns = cuda, end_ns

    def wait(self, *_: Any) -> bool:  # type: ignore[override]
        self._cuda.current.put(self._cuda, 0, after_ns=self._end_ns)
        return True

    def get_future(self) -> Any:
        raise AssertionError("its callbacks make a stream of the pool wait, and a batch has none: torch would crash")


class NcclGroup:
    """The plain group behind a traced one. ``transfer_ns``: how long each operation takes."""

    group_desc = "mesh_tp"
    _device_types = (torch.device("cuda"),)

    def __init__(self, cuda: StreamedCuda, *, transfer_ns: int) -> None:
        self._cuda, self.transfer_ns = cuda, transfer_ns
        self._streams: dict[int | None, Stream] = {}
        self._batch: list[int] | None = None
        self.meanwhile: Any = lambda: None
        """What another thread does while a communicator is made."""
        self.refusal: Exception | None = None
        """The error of every operation, before anything is put on a stream."""

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return 2

    def allreduce(self, tensors: Any, options: Any) -> Any:
        return self._run(None, asynchronous=options.asyncOp)

    def barrier(self, options: Any) -> Any:
        return self._run(None, asynchronous=options.asyncOp)

    def send(self, tensors: Any, peer: int, tag: int) -> Any:
        return self._run(peer, asynchronous=True)

    recv = send

    def _start_coalescing(self, device: torch.device) -> None:
        self._batch = []

    def _end_coalescing(self, device: torch.device) -> Any:
        count, self._batch = len(self._batch or []), None
        assert count
        return self._run(None, asynchronous=True)

    def _run(self, peer: int | None, *, asynchronous: bool) -> Any:
        if self.refusal is not None:
            raise self.refusal
        stream = self._communicator(None if self._batch is not None else peer)
        if self._batch is not None:
            self._batch.append(1)
            return None
        if not asynchronous:
            self._cuda.compute(self.transfer_ns)
            return None
        end_ns = stream.put(self._cuda, self.transfer_ns, after_ns=self._cuda.current.done_ns)
        return NcclWork(self._cuda, end_ns)

    def _communicator(self, peer: int | None) -> Stream:
        if peer not in self._streams:
            self.meanwhile()
            self._streams[peer] = self._cuda.Stream()
        return self._streams[peer]

    def _get_backend(self, device: torch.device) -> Any:
        return self

    def name(self) -> str:
        return "nccl"
