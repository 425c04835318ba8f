"""Finds the CUDA stream on which an NCCL communicator moves data, so that the end of a transfer can be recorded there.

    first operation    draw ------- communicator is made: torch draws one stream for it ------- draw
    of a group               i                          i + 1                                 i + 2

torch's ProcessGroupNCCL takes a communicator's stream out of torch's pool, in turn, when it makes the communicator, and
keeps it. So it is the one between the two streams that are drawn here. The rest of the turn is drawn too, so that later
streams of the program are the same as without tracing. An event there adds no edge between streams.

The future of the work is not used, because it has side effects. Its callbacks run on a stream of the pool that is made
to wait, although it may be a stream of the program or of another communicator. The outputs are recorded on that stream,
which delays their reuse. Under a graph capture that stream would join the graph. Coalesced works have no future at all,
and asking for one ends the process. (ivalue_inl.h ``invokeCallback``, ProcessGroupNCCL.cpp ``endCoalescing``)

If the stream is not known, a span ends on the current stream when the rank waits.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from telemetry.record.recording import RECORDER

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
