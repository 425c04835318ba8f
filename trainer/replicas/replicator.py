"""Sends a copy of this rank's state to two keepers, beside the training.

    training   step 41 | snapshot | step 42            | step 43 | snapshot | step 44
    sender                        | shard, own keeper, neighbour |          | shard ...

ByteRobust (arXiv 2509.16293) and Gemini (SOSP 2023) keep replicas of every step on peers. Here all ranks take a
snapshot after the first step at which no rank is still sending. So each replica is sent before the next one begins.
The number ``sending`` in the sum over all ranks shows this (``trainer/checkpoint/schedule.py``).
"""

import copy
import json
import os
import threading
import time
import zlib
from collections.abc import Mapping

from torch import Tensor

import telemetry
from telemetry import Stage, span
from telemetry.errors import RankscopeError
from telemetry.printable import printable, write_lines
from trainer.checkpoint.folder import INDEX_NAME, About, report_name
from trainer.checkpoint.shards import reported, writer_into
from trainer.checkpoint.write import Buffers, WritePlan
from trainer.replicas.client import PIECE_BYTES, KeeperClient
from trainer.replicas.memory_folder import MemoryFolder, memory_folder
from trainer.replicas.parts import Part, PartFile
from trainer.run_options import ReplicaPlaces

RETRY_S = 10.0
"""A keeper that did not answer is left out for this time."""
FINISH_S = 5.0
"""How long the end of the training waits for a replica."""


class Target:
    """A keeper that receives the parts of this rank. Reports once that it does not answer."""

    def __init__(self, name: str, address: str, token: str) -> None:
        self._name = name
        self._address, self._token = address, token
        self._failed_s: float | None = None

    def send(self, part: Part, folder: MemoryFolder) -> None:
        """Send ``part``. Never raises because of the keeper."""
        now_s = time.monotonic()
        if self._failed_s is not None and now_s - self._failed_s < RETRY_S:
            return
        try:
            with KeeperClient(self._address, self._token) as client:
                client.send(part, folder)
            self._failed_s = None
        except RankscopeError as error:
            if self._failed_s is None:
                report_failure(f"no replica after step {part.about.step - 1} on the {self._name}: {error.message}")
            self._failed_s = time.monotonic()


class Replicator:
    """The replicas of one rank. Methods are called on the training thread."""

    def __init__(self, places: ReplicaPlaces, plan: WritePlan, tensors: Mapping[str, Tensor], *, rank: int) -> None:
        self._plan = plan
        self._planner = copy.copy(plan.planner)
        """A copy, because the thread that writes to storage uses ``plan.planner`` with other buffers."""
        self._rank = rank
        self._buffers = Buffers(tensors)
        named = {"own node": places.own, "neighbour": places.neighbour}
        self._targets = [Target(name, address, places.token) for name, address in named.items() if address]
        self._thread: threading.Thread | None = None

    @property
    def busy(self) -> bool:
        """Whether a part is being sent. The buffers must not change during this time."""
        return self._thread is not None and self._thread.is_alive()

    def take(self, tensors: Mapping[str, Tensor], about: About) -> None:
        """Copy ``tensors``, and send them as the part of ``about.step``. Returns when the copy is made or queued."""
        assert not self.busy
        with span(Stage.CHECKPOINT_SNAPSHOT):
            self._buffers.copy_from(tensors)
        self._thread = threading.Thread(target=self._run, args=(about,), name="replica", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until the part is sent, at most ``FINISH_S``."""
        if self._thread is not None:
            self._thread.join(FINISH_S)

    def _run(self, about: About) -> None:
        try:
            self._buffers.wait()
            with memory_folder(f"replica of rank {self._rank}") as folder:
                part = self._write(folder, about)
                for target in self._targets:
                    target.send(part, folder)
        except Exception as error:  # a replica that cannot be made must not end the training
            report_failure(f"no replica after step {about.step - 1}: {error}")

    def _write(self, folder: MemoryFolder, about: About) -> Part:
        """Write the files of this rank, as for a checkpoint in storage."""
        self._planner.buffers = self._buffers.tensors
        results = writer_into(folder).write_data(self._plan.plan, self._planner).value()
        folder.write(report_name(self._rank), json.dumps(reported(folder, results)).encode())
        if self._plan.metadata is not None:
            index = copy.copy(self._plan.metadata)
            writer_into(folder).finish(index, [])
            assert INDEX_NAME in folder.names()
        files = tuple(_described(folder, name) for name in folder.names())
        return Part(about=about, rank=self._rank, writer_id=self._plan.writer_id, files=files)


def report_failure(reason: str) -> None:
    """Write a line to the log of the rank, and record a mark."""
    text = "; ".join(filter(None, map(printable, reason.splitlines())))
    telemetry.mark("replica-failed", text)
    write_lines(text)


def _described(folder: MemoryFolder, name: str) -> PartFile:
    crc32 = 0
    with os.fdopen(folder.open(name), "rb") as file:
        while piece := file.read(PIECE_BYTES):
            crc32 = zlib.crc32(piece, crc32)
    return PartFile(name=name, size_bytes=folder.size_bytes(name), crc32=crc32)
