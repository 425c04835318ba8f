"""Traces every collective: a process group that wraps the real one.

    backend = register_traced_backend("gloo")                "nccl", "cpu:gloo,cuda:nccl", None as well
    dist.init_process_group(backend)

    DTensor, fully_shard, DDP, pipelining, barrier ...
              |  allreduce, all_gather_single, send, ...
         TracedGroup      numbers the operation, stamps its issue
              |
     inner ProcessGroup   made by torch as without tracing; does the work      Work --> its end ends the span

On the host a span lasts from the issue of the operation until the rank knows that it has ended: the return of
``wait()``, or the future that DDP waits on. An operation without a wait gets no span. On a device a span lasts from the
moment at which the inputs are ready on the current stream to the end of the transfer (``traced_work``). Tracing changes
no result, order or overlap.

A group has the axes that the session's topology gives its ranks, or those in its description. ``relabel`` and
``setGroupDesc`` correct them.
"""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
import torch.distributed as dist

from telemetry.record.collectives.arguments import cuda_device, received_bytes, size_bytes
from telemetry.record.collectives.operations import Flight, Line, Operations
from telemetry.record.collectives.stage_names import Operation, place_of
from telemetry.record.collectives.torch_groups import (
    COLLECTIVES,
    PASSED_ON,
    add_methods,
    batch_transfers_of,
    is_on_device,
    share_backends,
    to_collective,
    to_inner,
    wrap_new_groups,
)
from telemetry.record.collectives.traced_work import (
    Transfers,
    before_group,
    end_completed,
    end_transfers,
    follow,
    release_callbacks,
    transfers_of,
    withdraw,
)
from telemetry.record.recording import RECORDER, before_end, when_learned
from telemetry.record.session import before_start, current_session, see_group
from telemetry.stages import Stage
from telemetry.topology import Topology

MAX_DESCRIBED = 4096
MAX_BATCH = 16384
"""Largest number of operations of one batch that are followed: a batch may never end."""

OPERATIONS = Operations(RECORDER, lambda: current_session().mesh_is_final)
before_end(end_completed)
_described: dict[int, tuple[Stage, int, int]] = {}
_groups: WeakValueDictionary[int, "TracedGroup"] = WeakValueDictionary()
"""Groups in the order of their creation, so that every rank learns the same mesh from them."""
_numbers = count()


def register_traced_backend(inner: str | None = "gloo") -> Any:
    """Record every process group that is made from now on. Returns ``inner``, for ``dist.init_process_group``: names of
    backends do not change.

    Axes come from the session's topology, or the groups' descriptions. The session learns its mesh from the
    descriptions and ranks of the groups. If this version of torch does not allow it, a mark says so.
    """
    try:
        wrap_new_groups(before_group, traced_group)
        batch_transfers_of(TracedGroup)
    except Exception as error:
        RECORDER.mark("collectives-untraced", repr(error))
    return inner


def relabel(topology: Topology) -> None:
    """Give the groups the axes that they have in this mesh. Later operations get their stages."""
    for group in tuple(_groups.values()):
        with suppress(Exception):
            group.find_place(topology)


def _show_groups() -> None:
    """Show a new session the groups that exist. An earlier session may have learned its mesh from them."""
    for group in tuple(_groups.values()):
        with suppress(Exception):
            group.show()


when_learned(relabel)
before_start(_show_groups)


def describe_transfer(tensor: torch.Tensor, stage: Stage, *, microbatch: int = -1, chunk: int = -1) -> None:
    """Set the stage of the next send or receive of this tensor object. An interleaved schedule over two ranks needs
    it, because it sends forward and backward to the same peer."""
    if len(_described) >= MAX_DESCRIBED:
        _described.clear()  # descriptions of transfers that never came
    _described[id(tensor)] = (stage, microbatch, chunk)


class TracedGroup(dist.ProcessGroup):
    """A process group that records what goes through it and lets ``inner`` do the work."""

    def __init__(self, inner: dist.ProcessGroup, ranks: tuple[int, ...], transfers: Transfers) -> None:
        super().__init__(inner.rank(), inner.size())  # type: ignore[call-arg]  # Python may call no other
        self.inner = inner
        self.own_ranks = self.ranks = ranks
        self.index = inner.rank()
        self._batch: list[Flight] | None = None
        self._transfers = transfers
        self._follow_barriers = is_on_device(inner)
        self._world_size = dist.get_world_size() if dist.is_initialized() else len(ranks)  # the first has all ranks
        _groups[next(_numbers)] = self
        identity = current_session().identity
        self.find_place(Topology(dp=self._world_size) if identity is None else identity.topology)
        self.show()

    def find_place(self, topology: Topology) -> None:
        """Look up the axes of the group. They may be unknown. Ranks are those among all replica groups."""
        self.ranks = tuple(self.first_rank() + rank for rank in self.own_ranks)
        self.place = place_of(self.ranks, self.inner.group_desc, topology)
        self._stages = {operation: self.place.collective_stage(operation) for operation in Operation}
        self._topology = topology
        self._line = OPERATIONS.line(self.ranks, self.place.mask, name=self.place.name)
        self._lines: dict[tuple[int, Stage | None], Line] = {}

    def show(self) -> None:
        """Let the session learn its mesh from the group."""
        see_group(self.inner.group_desc, self.own_ranks, self._world_size)

    def first_rank(self) -> int:  # own_ranks count from it
        return current_session().first_rank

    def collective(self, name: str, operation: Operation, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Issue a collective on the inner group and follow it."""
        method = getattr(self.inner, name)
        if not RECORDER.recording():
            return method(*arguments, **keywords)
        device = cuda_device(arguments)
        flight = self._issue_collective(operation, arguments, device)
        return self._run(partial(method, *arguments, **keywords), flight, None, device)

    def send(self, tensors: list[torch.Tensor], dstRank: int, tag: int = 0) -> Any:
        return self._transfer(self.inner.send, tensors, dstRank, tag, sends=True)

    def recv(self, tensors: list[torch.Tensor], srcRank: int, tag: int = 0) -> Any:
        return self._transfer(self.inner.recv, tensors, srcRank, tag, sends=False)

    def _transfer(
        self, method: Callable[..., Any], tensors: list[torch.Tensor], peer_index: int, tag: int, *, sends: bool
    ) -> Any:
        if not RECORDER.recording():
            return method(tensors, peer_index, tag)
        device = cuda_device(tensors)
        flight = self._issue_transfer(tensors, peer_index, device, sends=sends)
        peer = None if self._batch is not None else peer_index
        return self._run(partial(method, tensors, peer_index, tag), flight, peer, device)

    def _run(self, call: Callable[[], Any], flight: Flight | None, peer: int | None, device: int | None) -> Any:
        noted = self._transfers.before(peer, device)
        try:
            work = call()
        except Exception as error:
            self._transfers.after(peer, device, noted, early=True)
            withdraw([flight] if flight else [], OPERATIONS, error)
            raise
        return self._follow(work, flight, self._transfers.after(peer, device, noted))

    def _issue_collective(self, operation: Operation, arguments: tuple[Any, ...], device: int | None) -> Flight | None:
        try:
            size = received_bytes(arguments) if operation is Operation.ALL_TO_ALL else size_bytes(arguments)
            on_device = device is not None or (self._follow_barriers and not size)
            return OPERATIONS.issue(self._line, self._stages[operation], size, on_device=on_device)
        except Exception:  # the collective continues, untraced
            return None

    def _issue_transfer(
        self, tensors: list[torch.Tensor], peer_index: int, device: int | None, *, sends: bool
    ) -> Flight | None:
        try:
            stage, microbatch, chunk = _described.pop(id(tensors[0]), (None, -1, -1))
            if stage is None:
                stage = self.place.transfer_stage(self.ranks, self.index, peer_index, self._topology, sends=sends)
            line, size, on_device = self._line_to(peer_index, stage), size_bytes(tensors), device is not None
            return OPERATIONS.issue(line, line.stage, size, microbatch=microbatch, chunk=chunk, on_device=on_device)
        except Exception:
            return None

    def _line_to(self, peer_index: int, stage: Stage | None) -> Line:
        if (key := (peer_index, stage)) not in self._lines:
            peer = self.ranks[peer_index]
            self._lines[key] = OPERATIONS.line(self.ranks, self.place.mask, peer=peer, direction=stage)
        return self._lines[key]

    def _follow(self, work: Any, flight: Flight | None, stream: Any | None) -> Any:
        """The work for the caller. Its end ends the flight. In a batch, no operation starts before the batch ends."""
        if flight is None:
            return work
        if self._batch is not None:
            if len(self._batch) < MAX_BATCH:
                self._batch.append(flight)
            return work
        return self._follow_all(work, [flight], stream)

    def _follow_all(self, work: Any, flights: list[Flight], stream: Any | None) -> Any:
        if work is None or stream is None:
            return follow(work, flights, OPERATIONS)
        with suppress(Exception), self._transfers.cuda.stream(stream):
            end_transfers(flights, OPERATIONS)
            return work
        return follow(work, flights, OPERATIONS)

    def _start_coalescing(self, device: torch.device) -> None:
        self.inner._start_coalescing(device)
        withdraw(self._batch or [], OPERATIONS)  # a batch that an error left without an end was not issued
        self._batch = []

    def _end_coalescing(self, device: torch.device) -> Any:
        flights, self._batch = self._batch or [], None
        try:
            work = self.inner._end_coalescing(device)
        except Exception as error:
            withdraw(flights, OPERATIONS, error)
            raise
        return self._follow_all(work, flights, self._transfers.after(None, device.index, None))

    def split_group(self, *arguments: Any, **keywords: Any) -> dist.ProcessGroup | None:
        """Let torch split the communicator of the inner group, and trace the new group."""
        group = self.inner.split_group(*arguments, **keywords)
        if group is None:
            return None
        members = arguments[0] if arguments else keywords["new_ranks"]
        return traced_group(group, tuple(self.own_ranks[member] for member in members))

    def shutdown(self) -> None:
        """Wait for the hooks of ``inner`` first: torch waits only for hooks of groups of exactly its own type."""
        release_callbacks()
        with suppress(RuntimeError):  # the backend has no hooks
            if self.inner._has_hooks():
                self.inner._wait_for_pending_works()
        self.inner.shutdown()

    # Methods that torch's C++ calls by these names.

    def getBackendName(self) -> str:
        return self.inner.name()

    def getGroupName(self) -> str:
        return self.inner.group_name

    def setGroupName(self, name: str) -> None:
        self.inner._set_group_name(name)  # type: ignore[arg-type]  # a NewType of newer torch

    def getGroupDesc(self) -> str:
        return self.inner.group_desc

    def setGroupDesc(self, desc: str) -> None:
        self.inner._set_group_desc(desc)
        with suppress(Exception):
            self.find_place(self._topology)
            self.show()

    def setTimeout(self, timeout: timedelta) -> None:
        self.inner.set_timeout(timeout)


add_methods(TracedGroup, dist.ProcessGroup, {name: to_collective(name) for name in COLLECTIVES})
add_methods(TracedGroup, dist.ProcessGroup, {name: to_inner(name) for name in PASSED_ON})


def traced_group(
    inner: dist.ProcessGroup,
    ranks: tuple[int, ...],
    early: Callable[[], Transfers] | None = None,
    kind: type[TracedGroup] = TracedGroup,
) -> dist.ProcessGroup:
    """A traced group around ``inner``, with the same backends; ``inner`` itself if that fails."""
    try:
        group = kind(inner, ranks, early() if early is not None else transfers_of(inner))
        share_backends(group, inner)
        return group
    except Exception as error:
        RECORDER.mark("collectives-untraced", repr(error))
        return inner
