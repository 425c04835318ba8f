"""Write checkpoints in two stages: a copy to host memory inside the step, files outside it.

MegaScale (arXiv 2402.15627), section 4.4.

    training   step 41 | snapshot | step 42                 | step 43 ...
    writer                        | shard, sync, rank-N.json |
    rank 0                        |      waits for every rank's file | index, sync, rename

All ranks plan the layout of shards once, before the first step. The writer threads use no collective: rank 0 finds the
parts of other ranks in the folder. A rank that dies in the middle leaves an unfinished folder, and no writer thread
waits for it in a collective.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan

import telemetry
from telemetry import Stage
from telemetry.printable import printable, write_lines
from trainer.checkpoint.failure import OTHER_RANK, OtherRankError, why_not_written
from trainer.checkpoint.folder import (
    About,
    commit,
    partial_folder,
    partial_name,
    remove_old,
    remove_partial,
    report_name,
    write_synced,
)
from trainer.checkpoint.shards import numbered, read_report, reported, writer_into
from trainer.checkpoint.space import planned_bytes
from trainer.progress import recorded_event

POLL_S, LONGEST_POLL_S = 0.05, 1.0
"""Pauses of rank 0 between two searches for the files of the other ranks: each is twice as long as the one before."""


class _BufferPlanner(DefaultSavePlanner):
    """Plans with the live tensors, and writes their copies in host memory."""

    buffers: Mapping[str, Tensor]

    def lookup_object(self, index: MetadataIndex) -> Any:
        """The copy of the tensor that ``index`` names."""
        return self.buffers[index.fqn]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """Who writes what: the same in every checkpoint of an attempt."""

    planner: _BufferPlanner
    plan: SavePlan
    """The part that this rank writes."""
    metadata: Metadata | None
    """The index, without the places of the shards. None on ranks other than 0."""
    writer_id: str
    """Hexadecimal. The same on every rank, and different in each attempt."""
    size_bytes: int
    """Approximate size of a checkpoint. 0 on ranks other than 0."""


def plan_writes(tensors: Mapping[str, Tensor], *, rank: int, world_size: int) -> WritePlan:
    """Agree with all ranks on who writes what. A collective call.

    A tensor that several ranks hold is written by one of them.
    """
    planner = _BufferPlanner()
    planner.set_up_planner(dict(tensors), is_coordinator=rank == 0)
    gathered: list[Any] = [planner.create_local_plan()] if rank == 0 else []
    if world_size > 1:
        gathered = [None] * world_size if rank == 0 else []
        dist.gather_object(planner.create_local_plan(), gathered or None)
    parts, metadata, size_bytes = None, None, 0
    if rank == 0:
        plans, metadata = planner.create_global_plan(gathered)
        size_bytes = planned_bytes(plans)
        writer_id = os.urandom(4).hex()
        parts = [(plan, writer_id) for plan in numbered(plans)]
    received: list[Any] = parts or [None]
    if world_size > 1:
        received = [None]
        dist.scatter_object_list(received, parts)
    plan, writer_id = received[0]
    return WritePlan(
        planner=planner,
        plan=planner.finish_plan(plan),
        metadata=metadata,
        writer_id=writer_id,
        size_bytes=size_bytes,
    )


class Buffers:
    """Host memory for one snapshot. Pinned where the tensors are on a GPU."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._pinned = any(tensor.device.type == "cuda" for tensor in tensors.values())
        self.tensors = {name: self._like(_local(tensor)) for name, tensor in tensors.items()}
        self._events: tuple[Any, Any] | None = None
        self.copy_s = 0.0
        """Seconds that the newest copy took. On a GPU it is known when the copies have arrived."""

    @torch.no_grad()
    def copy_from(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy all tensors. On a GPU the copies are queued on the current stream, behind the work of the step."""
        began = recorded_event() if self._pinned else None
        began_s = time.monotonic()
        for name, buffer in self.tensors.items():
            buffer.copy_(_local(tensors[name]), non_blocking=True)
        if self._pinned:
            self._events = began, recorded_event()
        else:
            self.copy_s = time.monotonic() - began_s

    def wait(self) -> None:
        """Return when the copies have arrived. The writer thread calls this."""
        if self._events is not None:
            began, ended = self._events
            ended.synchronize()
            self.copy_s = began.elapsed_time(ended) / 1e3

    def _like(self, tensor: Tensor) -> Tensor:
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=self._pinned)


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class CheckpointWriter:
    """Writes one checkpoint at a time, in a thread.

    ``report`` gets the reason when this rank cannot write a checkpoint, and an empty text when it has written one.
    """

    def __init__(
        self, root: Path, plan: WritePlan, *, rank: int, keep: int, report: Callable[[str], None] = lambda _: None
    ) -> None:
        self._root = root
        self._plan = plan
        self._rank = rank
        self._keep = keep
        self._report = report
        self._thread: threading.Thread | None = None
        self._abandoned = threading.Event()
        self._part_ended = threading.Event()
        self.failure: str | None = None
        """Why this rank could not write the newest checkpoint. None if no error is known."""

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is under way. Its buffers must not change during this time."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, buffers: Buffers, about: About) -> None:
        """Write ``buffers`` as the checkpoint of ``about.step``. Returns at once."""
        assert not self.busy
        self.failure = None
        self._abandoned.clear()
        self._part_ended.clear()
        self._thread = threading.Thread(target=self._run, args=(buffers, about), name="checkpoint", daemon=True)
        self._thread.start()

    def wait_for_part(self) -> None:
        """Wait until this rank has written its part, or has failed to. ``failure`` is known then."""
        if self._thread is not None:
            self._part_ended.wait()

    def finish(self) -> None:
        """Wait until this rank has written its part; on rank 0, until the checkpoint is complete or abandoned."""
        if self._thread is not None:
            self._thread.join()

    def abandon(self) -> None:
        """Stop waiting for other ranks: one of them could not write its part."""
        self._abandoned.set()

    def discard(self) -> None:
        """Remove what ranks have left of abandoned checkpoints. Only rank 0 may call this, while no rank writes."""
        with suppress(OSError):
            remove_partial(self._root)

    def _run(self, buffers: Buffers, about: About) -> None:
        started_ns = time.monotonic_ns()
        try:
            buffers.wait()
            size_bytes = self._write_part(buffers, about)
            self._part_ended.set()
            if self._rank == 0:
                self._complete(about)
        except Exception as error:  # a checkpoint that cannot be written must not end the training
            self._fail(about, why_not_written(error, self._root))
            return
        self._report("")
        telemetry.record_span(
            Stage.CHECKPOINT_WRITE,
            started_ns,
            time.monotonic_ns() - started_ns,
            step=about.step - 1,
            size_bytes=size_bytes,
        )

    def _fail(self, about: About, reason: str) -> None:
        words = f"checkpoint after step {about.step - 1} is not written: {reason}"
        self.failure = "; ".join(filter(None, map(printable, words.splitlines())))
        self._part_ended.set()
        telemetry.mark("checkpoint-failed", self.failure)
        write_lines(self.failure)
        if reason != OTHER_RANK:
            self._report(self.failure)
        if self._rank == 0:
            self.discard()

    def _write_part(self, buffers: Buffers, about: About) -> int:
        """Write this rank's file and the list of its content. Returns the number of bytes."""
        planner = self._plan.planner
        planner.buffers = buffers.tensors
        if self._rank == 0:
            with suppress(OSError):  # old parts take space that this checkpoint may need
                remove_partial(self._root, besides=partial_name(about.step, self._plan.writer_id))
        with partial_folder(self._root, about.step, self._plan.writer_id) as folder:
            results = writer_into(folder).write_data(self._plan.plan, planner).value()
            write_synced(folder, report_name(self._rank), json.dumps(reported(folder, results)).encode())
        return sum(result.storage_data.length for result in results)

    def _complete(self, about: About) -> None:
        """Wait for the parts of all ranks, then make the checkpoint complete.

        Raises:
            OtherRankError: the checkpoint was abandoned.
            OSError: the folder does not exist any more, or cannot be written.
        """
        assert self._plan.metadata is not None
        self._wait_for_others(about)
        with partial_folder(self._root, about.step, self._plan.writer_id, make=False) as folder:
            results = [read_report(folder, rank) for rank in range(about.world_size)]
            writer_into(folder).finish(self._plan.metadata, results)
        commit(self._root, about, self._plan.writer_id)
        telemetry.mark("checkpoint", f"complete after step {about.step - 1}")
        with suppress(OSError):
            remove_old(self._root, newest=about.step, keep=self._keep, writer_id=self._plan.writer_id)

    def _wait_for_others(self, about: About) -> None:
        """Return when the parts of all ranks are in the folder. It is opened anew each time: it may have been
        removed."""
        expected, pause_s = {report_name(rank) for rank in range(about.world_size)}, POLL_S
        while True:
            with partial_folder(self._root, about.step, self._plan.writer_id, make=False) as folder:
                if expected <= set(folder.names()):
                    return
            if self._abandoned.wait(pause_s):
                raise OtherRankError
            pause_s = min(2 * pause_s, LONGEST_POLL_S)
