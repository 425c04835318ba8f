"""Write checkpoints in two stages: a copy to host memory inside the step, files outside it.

MegaScale (arXiv 2402.15627), section 4.4.

    training   step 41 | snapshot | step 42                 | step 43 ...
    writer                        | shard, sync, rank-N.json |
    rank 0                        |      waits for every rank's file | index, sync, rename

All ranks plan the layout of shards once, before the first step. After that no checkpoint needs a collective: ranks meet
on the file system only. A rank that dies in the middle leaves an unfinished folder, and no rank waits for it in a
collective.
"""

import json
import os
import threading
import time
from collections.abc import Mapping
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
from telemetry.printable import printable
from trainer.checkpoint.folder import About, commit, partial_folder, remove_old, report_name, write_synced
from trainer.checkpoint.shards import numbered, read_report, reported, writer_into

POLL_S = 0.05
"""Rank 0 looks this often for the files of the other ranks."""


class _BufferPlanner(DefaultSavePlanner):
    """Plans with the live tensors, and writes their copies in host memory."""

    buffers: Mapping[str, Tensor]

    def lookup_object(self, index: MetadataIndex) -> Any:
        """The copy of the tensor that ``index`` names."""
        return self.buffers[index.fqn]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """Who writes what: the same in every checkpoint of a life of the job."""

    planner: _BufferPlanner
    plan: SavePlan
    """This rank's part."""
    metadata: Metadata | None
    """The index without places; on rank 0 only."""
    life: str
    """Hexadecimal, the same on every rank."""


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
    parts, metadata = None, None
    if rank == 0:
        plans, metadata = planner.create_global_plan(gathered)
        life = os.urandom(4).hex()
        parts = [(plan, life) for plan in numbered(plans)]
    received: list[Any] = parts or [None]
    if world_size > 1:
        received = [None]
        dist.scatter_object_list(received, parts)
    plan, life = received[0]
    return WritePlan(planner=planner, plan=planner.finish_plan(plan), metadata=metadata, life=life)


class Buffers:
    """Host memory for one snapshot. Pinned where the tensors are on a GPU."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._pinned = any(tensor.device.type == "cuda" for tensor in tensors.values())
        self.tensors = {name: self._like(_local(tensor)) for name, tensor in tensors.items()}
        self._copied: Any = None

    @torch.no_grad()
    def copy_from(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy all tensors. On a GPU the copies are queued on the current stream, behind the work of the step."""
        for name, buffer in self.tensors.items():
            buffer.copy_(_local(tensors[name]), non_blocking=True)
        if self._pinned:
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()

    def wait(self) -> None:
        """Return when the copies have arrived. For the thread that writes."""
        if self._copied is not None:
            self._copied.synchronize()

    def _like(self, tensor: Tensor) -> Tensor:
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=self._pinned)


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


class CheckpointWriter:
    """Writes one checkpoint at a time, in a thread."""

    def __init__(self, root: Path, plan: WritePlan, *, rank: int, keep: int) -> None:
        self._root = root
        self._plan = plan
        self._rank = rank
        self._keep = keep
        self._thread: threading.Thread | None = None
        self._abandoned = threading.Event()
        if rank == 0:
            self._tidy()
        self.failure: str | None = None
        """Why the newest checkpoint could not be written by this rank."""

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is under way. Its buffers must not change until then."""
        return self._thread is not None and self._thread.is_alive()

    def begin(self, buffers: Buffers, about: About) -> None:
        """Write ``buffers`` as the checkpoint of ``about.step``. Returns at once."""
        assert not self.busy
        self.failure = None
        self._abandoned.clear()
        self._thread = threading.Thread(target=self._run, args=(buffers, about), name="checkpoint", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until this rank has done its part; on rank 0, until the checkpoint is complete or abandoned."""
        if self._thread is not None:
            self._thread.join()

    def abandon(self) -> None:
        """Stop waiting for other ranks: one of them could not write its part."""
        self._abandoned.set()

    def _run(self, buffers: Buffers, about: About) -> None:
        started_ns = time.monotonic_ns()
        try:
            buffers.wait()
            size_bytes = self._write_part(buffers, about)
            if self._rank == 0 and self._wait_for_others(about):
                self._complete(about)
        except Exception as error:  # a checkpoint that cannot be written must not end the training
            self.failure = printable(f"checkpoint after step {about.step - 1} is not written: {error}")
            telemetry.mark("checkpoint-failed", self.failure)
            return
        telemetry.record_span(
            Stage.CHECKPOINT_WRITE,
            started_ns,
            time.monotonic_ns() - started_ns,
            step=about.step - 1,
            size_bytes=size_bytes,
        )

    def _write_part(self, buffers: Buffers, about: About) -> int:
        """Write this rank's file and the list of its content; the number of bytes."""
        planner = self._plan.planner
        planner.buffers = buffers.tensors
        with partial_folder(self._root, about.step, self._plan.life) as folder:
            results = writer_into(folder).write_data(self._plan.plan, planner).value()
            write_synced(folder, report_name(self._rank), json.dumps(reported(folder, results)).encode())
        return sum(result.storage_data.length for result in results)

    def _wait_for_others(self, about: About) -> bool:
        """Whether every rank has written its part."""
        missing = {report_name(rank) for rank in range(about.world_size)}
        with partial_folder(self._root, about.step, self._plan.life) as folder:
            while missing := missing - set(folder.names()):
                if self._abandoned.wait(POLL_S):
                    return False
        return True

    def _complete(self, about: About) -> None:
        assert self._plan.metadata is not None
        with partial_folder(self._root, about.step, self._plan.life) as folder:
            results = [read_report(folder, rank) for rank in range(about.world_size)]
            writer_into(folder).finish(self._plan.metadata, results)
        commit(self._root, about, self._plan.life)
        telemetry.mark("checkpoint", f"complete after step {about.step - 1}")
        self._tidy()

    def _tidy(self) -> None:
        with suppress(OSError):
            remove_old(self._root, keep=self._keep, life=self._plan.life)
