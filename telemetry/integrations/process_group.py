"""One seam that sees every collective: a process group in front of the real one.

    backend = register_traced_backend("gloo", topology)
    dist.init_process_group(backend)

    DTensor, fully_shard, DDP, pipelining, barrier ...
              |  allreduce, all_gather_single, send, ...
         TracedGroup      numbers the operation, stamps its issue
              |
     inner ProcessGroup   the real backend does the work        Work --> TracedWork: its wait() ends the span

A span lasts from the issue of the operation until the rank knows that it has ended: the return of ``wait()``, or the
future that DDP waits on. An operation that nobody waits for gets no span. On a device, two events stand around it on
the streams that are current then: nothing waits that did not wait before. Results, order and overlap stay as they
are; where this torch does not allow the seam, training goes on untraced and a mark says so. (torchft wraps groups in
the same way.)

What shows: ``dist.get_backend()`` says ``traced_gloo``, and so ``dist.monitored_barrier``, which asks for ``gloo`` by
name, refuses.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from telemetry.integrations.inner_backends import batch_transfers_of, make_gloo, make_nccl
from telemetry.integrations.stage_names import Operation, axis_named, axis_of, collective_stage, transfer_stage
from telemetry.integrations.traced_work import end_completed, follow, size_bytes
from telemetry.record.operations import Flight, Line, Operations
from telemetry.session import RECORDER, before_end, current_session
from telemetry.stages import Stage
from telemetry.topology import Axis, Topology

PREFIX = "traced_"
COLLECTIVES: dict[str, Operation] = {
    "allreduce": Operation.ALL_REDUCE,
    "allreduce_coalesced": Operation.ALL_REDUCE,
    "allgather": Operation.ALL_GATHER,
    "allgather_coalesced": Operation.ALL_GATHER,
    "allgather_into_tensor_coalesced": Operation.ALL_GATHER,
    "_allgather_base": Operation.ALL_GATHER,
    "all_gather_single": Operation.ALL_GATHER,
    "all_gather_single_coalesced": Operation.ALL_GATHER,
    "reduce_scatter": Operation.REDUCE_SCATTER,
    "reduce_scatter_tensor_coalesced": Operation.REDUCE_SCATTER,
    "_reduce_scatter_base": Operation.REDUCE_SCATTER,
    "reduce_scatter_single": Operation.REDUCE_SCATTER,
    "reduce_scatter_single_coalesced": Operation.REDUCE_SCATTER,
    "broadcast": Operation.OTHER,
    "reduce": Operation.OTHER,
    "gather": Operation.OTHER,
    "scatter": Operation.OTHER,
    "alltoall": Operation.OTHER,
    "alltoall_base": Operation.OTHER,
    "all_to_all_single": Operation.OTHER,
    "barrier": Operation.OTHER,
}
"""Methods of a process group, over the versions of torch, and what they do."""
PASSED_ON = (
    "abort", "shutdown", "monitored_barrier", "recv_anysource", "set_timeout", "_set_sequence_number_for_group",
    "_get_sequence_number_for_group", "_wait_for_pending_works", "_enable_collectives_timing", "_has_hooks",
    "_register_on_completion_hook",
)  # fmt: skip
"""Methods that go to the inner group as they are."""
MAX_DESCRIBED = 4096

OPERATIONS = Operations(RECORDER)
before_end(end_completed)
_topology: Topology | None = None
_described: dict[int, tuple[Stage, int, int]] = {}


def register_traced_backend(inner: str = "gloo", topology: Topology | None = None) -> str:
    """Register a backend that does what ``inner`` does and records it; its name, for ``dist.init_process_group``.

    Axes come from ``topology``, or the session's when it is None, or the names of a DeviceMesh's groups. Where this
    torch has no room for the seam the answer is ``inner`` itself.
    """
    global _topology
    _topology = topology
    name = PREFIX + inner
    if name in dist.Backend.backend_list:
        return name
    try:
        devices = dist.Backend.backend_capability[inner]
        create = _creator(inner, devices)
        dist.Backend.register_backend(name, create, extended_api=True, devices=devices)
        batch_transfers_of(TracedGroup)
    except Exception as error:
        RECORDER.mark("collectives-untraced", repr(error))
        return inner
    return name


def describe_transfer(tensor: torch.Tensor, stage: Stage, *, microbatch: int = -1, chunk: int = -1) -> None:
    """Say what the next send or receive of this very tensor is for. Needed where ranks cannot tell: an interleaved
    schedule over two ranks sends forward and backward to the same peer."""
    if len(_described) >= MAX_DESCRIBED:
        _described.clear()  # descriptions of transfers that never came
    _described[id(tensor)] = (stage, microbatch, chunk)


class TracedGroup(dist.ProcessGroup):
    """A process group that records what goes through it and lets ``inner`` do the work."""

    def __init__(self, inner: dist.ProcessGroup, ranks: tuple[int, ...], topology: Topology) -> None:
        super().__init__(inner.rank(), inner.size())  # type: ignore[call-arg]  # the only one that a subclass may call
        self.inner = inner
        self.ranks = ranks
        self.index = inner.rank()
        self._batch: list[Flight] | None = None
        self._lie_along(axis_of(ranks, ranks[self.index], topology))

    def _lie_along(self, axis: Axis | None) -> None:
        self.axis = axis
        self._line = OPERATIONS.line(self.ranks, axis)
        self._lines: dict[tuple[int, Stage | None], Line] = {}

    def collective(self, name: str, operation: Operation, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Issue a collective on the inner group and follow it."""
        flight = self._issue_collective(operation, arguments) if RECORDER.recording() else None
        return self._follow(getattr(self.inner, name)(*arguments, **keywords), flight)

    def send(self, tensors: list[torch.Tensor], dstRank: int, tag: int = 0) -> Any:
        flight = self._issue_transfer(tensors, dstRank, sends=True) if RECORDER.recording() else None
        return self._follow(self.inner.send(tensors, dstRank, tag), flight)

    def recv(self, tensors: list[torch.Tensor], srcRank: int, tag: int = 0) -> Any:
        flight = self._issue_transfer(tensors, srcRank, sends=False) if RECORDER.recording() else None
        return self._follow(self.inner.recv(tensors, srcRank, tag), flight)

    def _issue_collective(self, operation: Operation, arguments: tuple[Any, ...]) -> Flight | None:
        try:
            return OPERATIONS.issue(self._line, collective_stage(self.axis, operation), size_bytes(arguments))
        except Exception:  # whatever is wrong with it, the collective goes on
            return None

    def _issue_transfer(self, tensors: list[torch.Tensor], peer_index: int, *, sends: bool) -> Flight | None:
        try:
            stage, microbatch, chunk = _described.pop(id(tensors[0]), (None, -1, -1))
            if stage is None and self.axis == "pp":
                stage = transfer_stage(self.index, peer_index, len(self.ranks), sends=sends)
            line = self._line_to(peer_index, stage)
            return OPERATIONS.issue(line, stage, size_bytes(tensors), microbatch=microbatch, chunk=chunk)
        except Exception:
            return None

    def _line_to(self, peer_index: int, stage: Stage | None) -> Line:
        key = (peer_index, stage)
        if key not in self._lines:
            self._lines[key] = OPERATIONS.line(self.ranks, self.axis, peer=self.ranks[peer_index], direction=stage)
        return self._lines[key]

    def _follow(self, work: Any, flight: Flight | None) -> Any:
        """Work that ends the flight. Within a batch nothing is under way before the batch ends."""
        if flight is None:
            return work
        if self._batch is not None:
            self._batch.append(flight)
            return work
        return follow(work, [flight], OPERATIONS)

    def _start_coalescing(self, device: torch.device) -> None:
        self._batch = []
        self.inner._start_coalescing(device)

    def _end_coalescing(self, device: torch.device) -> Any:
        flights, self._batch = self._batch or [], None
        return follow(self.inner._end_coalescing(device), flights, OPERATIONS)

    # What torch's C++ asks a group for by these names.

    def getBackendName(self) -> str:
        return PREFIX + self.inner.name()

    def getGroupName(self) -> str:
        return self.inner.group_name

    def setGroupName(self, name: str) -> None:
        self.inner._set_group_name(name)  # type: ignore[arg-type]  # a NewType of newer torch

    def getGroupDesc(self) -> str:
        return self.inner.group_desc

    def setGroupDesc(self, desc: str) -> None:
        self.inner._set_group_desc(desc)
        if self.axis is None and len(self.ranks) > 1:
            self._lie_along(axis_named(desc))

    def setTimeout(self, timeout: timedelta) -> None:
        self.inner.set_timeout(timeout)


def _traced(name: str, operation: Operation) -> Callable[..., Any]:
    def method(self: TracedGroup, *arguments: Any, **keywords: Any) -> Any:
        return self.collective(name, operation, arguments, keywords)

    method.__name__ = name
    return method


def _passed_on(name: str) -> Callable[..., Any]:
    def method(self: TracedGroup, *arguments: Any, **keywords: Any) -> Any:
        return getattr(self.inner, name)(*arguments, **keywords)

    method.__name__ = name
    return method


for _name, _operation in COLLECTIVES.items():
    if hasattr(dist.ProcessGroup, _name):
        setattr(TracedGroup, _name, _traced(_name, _operation))
for _name in PASSED_ON:
    if hasattr(dist.ProcessGroup, _name):
        setattr(TracedGroup, _name, _passed_on(_name))


def _session_topology() -> Topology | None:
    identity = current_session().identity
    return identity.topology if identity is not None else None


def _world_size(group_size: int) -> int:
    """The first group made is that of all ranks."""
    return dist.get_world_size() if dist.is_initialized() else group_size


def _creator(inner: str, devices: list[str]) -> Callable[[Any, Any], Any]:
    """What torch calls to make a group of our backend."""
    make_backend, kind = {
        "gloo": (make_gloo, dist.ProcessGroup.BackendType.GLOO),
        "nccl": (make_nccl, dist.ProcessGroup.BackendType.NCCL),
    }[inner]

    def create(options: Any, backend_options: Any) -> Any:
        backend = make_backend(options, backend_options)
        try:
            return _wrap(options, backend, kind, devices)
        except Exception as error:
            RECORDER.mark("collectives-untraced", repr(error))
            return backend

    return create


def _wrap(options: Any, backend: Any, kind: Any, devices: list[str]) -> TracedGroup:
    """The backend in a complete group of its own, and that in a traced one. The traced one knows the backend too, for
    those who ask for it and for operations that torch sends past the overrides."""
    inner = dist.ProcessGroup(options.store, options.group_rank, options.group_size)
    ranks = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
    topology = _topology or _session_topology() or Topology(dp=_world_size(len(ranks)))
    group = TracedGroup(inner, ranks, topology)
    for one in (inner, group):
        dist.ProcessGroup._set_default_backend(one, kind)
        for device in devices:
            dist.ProcessGroup._register_backend(one, torch.device(device), kind, backend)
    return group
