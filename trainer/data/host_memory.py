"""The memory that the loader of a host shares with its ranks, and the pipes between them.

keeper --- fork --> loader                        rank
                      | <--- requests: "rank 3 wants step 7" --- |        one pipe for all ranks
                      | --- answers: "step 7 is there" --------> |        one pipe for each rank

memory    8 bytes for each rank          the step that the rank wants; -1: none so far
          4096 bytes                     why no more batches come, if an answer says ERROR
          ring 0: slot 0, slot 1 ...     a ring for each data-parallel index of the host's ranks
          ring 1: slot 0, slot 1 ...     a slot: the sequences of one step, [sequences, length + 1] int64

Step s is in slot s % depth. A rank that wants step s has copied every step before it. The pipes order the accesses:
the loader answers after it has written a slot, and a rank asks for the next step after it has read one. A batch depends
on its step alone, so a loader that replaces a killed one writes the same bytes again.

Nothing has a name: no other user can open the memory or a pipe, and all of it is gone when the last process ends. A
rank opens them by the descriptors of the keeper in ``/proc``. This works for forked and spawned ranks, and under
torchrun. The size of the memory is sealed.
"""

import fcntl
import json
import mmap
import os
import stat
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from telemetry.errors import UsageError
from telemetry.process.child_process import birth_of
from trainer.config import TrainConfig
from trainer.data.batches import Rows

REQUEST = struct.Struct("=qq")
"""Local rank, step."""
ANSWER = struct.Struct("=qq")
"""The number of the loader, and a step or ERROR. The first loader has number 0."""
ERROR = -1
NONE = -1
"""Position of a rank that has not asked for a step."""
ERROR_BYTES = 4096
_PART_CHARACTERS = 500
"""Longest message and longest hint of an error. A character has up to four bytes."""
_WORD_BYTES = 8
_SEALS = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The positions of rings and slots in the memory."""

    rings: tuple[int, ...]
    """The ring of each rank of the host."""
    depth: int
    rows: int
    columns: int

    @classmethod
    def of(cls, config: TrainConfig, ranks: Sequence[int]) -> "Layout":
        """The layout for the ranks of one host."""
        indexes = dp_indexes(config, ranks)
        return cls(
            rings=tuple(indexes.index(config.parallel.topology.place(rank).dp) for rank in ranks),
            depth=config.data.queue_depth,
            rows=config.sequences_per_rank,
            columns=config.model.sequence_length + 1,
        )

    @property
    def head_bytes(self) -> int:
        return _WORD_BYTES * len(self.rings) + ERROR_BYTES

    @property
    def size_bytes(self) -> int:
        slots = (max(self.rings) + 1) * self.depth
        return self.head_bytes + slots * self.rows * self.columns * _WORD_BYTES


def dp_indexes(config: TrainConfig, ranks: Sequence[int]) -> list[int]:
    """The data-parallel index of each ring."""
    return sorted({config.parallel.topology.place(rank).dp for rank in ranks})


class HostMemory:
    """The shared memory, mapped into this process."""

    def __init__(self, descriptor: int, layout: Layout) -> None:
        self.layout = layout
        pages = mmap.mmap(descriptor, layout.size_bytes)
        head = _WORD_BYTES * len(layout.rings)
        self.positions: npt.NDArray[np.int64] = np.frombuffer(pages, dtype=np.int64, count=len(layout.rings))
        self._error = memoryview(pages)[head : head + ERROR_BYTES]
        slots = np.frombuffer(pages, dtype=np.int64, offset=layout.head_bytes)
        self._slots = slots.reshape(-1, layout.depth, layout.rows, layout.columns)

    def slot(self, ring: int, step: int) -> Rows:
        """The place of the sequences of ``step``."""
        place: Rows = self._slots[ring, step % self.layout.depth]
        return place

    def write_error(self, message: str, hint: str) -> None:
        """Write why no more batches come. Long texts are cut."""
        parts = [message[:_PART_CHARACTERS], hint[:_PART_CHARACTERS]]
        text = json.dumps(parts, ensure_ascii=False).encode(errors="replace")
        self._error[: len(text)] = text
        self._error[len(text) :] = bytes(ERROR_BYTES - len(text))

    def error(self) -> UsageError:
        """The error that :meth:`write_error` wrote."""
        message, hint = json.loads(bytes(self._error).rstrip(b"\0"))
        return UsageError(message, hint=hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The descriptors of the memory and the pipes, which the keeper passes to its loader."""

    memory: int
    requests: tuple[int, int]
    """The end to read from, and the end to write to."""
    answers: tuple[tuple[int, int], ...]
    """The same two ends of the pipe to each rank of the host."""

    @classmethod
    def create(cls, layout: Layout) -> "Ends":
        """New memory and pipes.

        Raises:
            OSError: there is not enough memory, or there are too many open files.
        """
        opened = [os.memfd_create("rankscope-batches", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)]
        try:
            os.posix_fallocate(opened[0], 0, layout.size_bytes)
            fcntl.fcntl(opened[0], fcntl.F_ADD_SEALS, _SEALS)
            HostMemory(opened[0], layout).positions[:] = NONE
            for _ in range(1 + len(layout.rings)):
                opened += os.pipe()
        except BaseException:
            for descriptor in opened:
                os.close(descriptor)
            raise
        memory, *ends = opened
        pipes = list(zip(ends[::2], ends[1::2], strict=True))
        return cls(memory=memory, requests=pipes[0], answers=tuple(pipes[1:]))

    def fail(self, memory: HostMemory, message: str, hint: str) -> None:
        """Send an error to every rank."""
        memory.write_error(message, hint)
        for _, answers in self.answers:
            os.write(answers, ANSWER.pack(0, ERROR))

    @property
    def descriptors(self) -> list[int]:
        return [self.memory, *self.requests, *(end for pipe in self.answers for end in pipe)]

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderAddress:
    """How a rank of the same host finds the loader: the process that keeps it, and its descriptors."""

    pid: int
    born: str
    ranks: tuple[int, ...]
    memory: int
    requests: int
    answers: tuple[int, ...]

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str | bytes) -> "LoaderAddress":
        """Raises ValueError, TypeError or KeyError if the text is no address."""
        found = json.loads(text)
        return cls(
            pid=int(found["pid"]),
            born=str(found["born"]),
            ranks=tuple(map(int, found["ranks"])),
            memory=int(found["memory"]),
            requests=int(found["requests"]),
            answers=tuple(map(int, found["answers"])),
        )

    def open(self, rank: int) -> tuple[int, int, int]:
        """Open the memory, the requests and the answers to ``rank``. Returns a new descriptor of each.

        Raises:
            OSError: the keeper has ended, or these descriptors are not what this user's keeper creates.
        """
        answers = self.answers[self.ranks.index(rank)]
        flags = {self.memory: os.O_RDWR, self.requests: os.O_WRONLY, answers: os.O_RDONLY}
        opened: list[int] = []
        try:
            for number, flag in flags.items():
                path = f"/proc/{self.pid}/fd/{number}"
                opened.append(os.open(path, flag | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
                self._check(opened[-1], is_memory=number == self.memory)
            if birth_of(self.pid) != self.born:
                raise OSError(f"process {self.pid} is not the process that started the data loader")
        except BaseException:
            for descriptor in opened:
                os.close(descriptor)
            raise
        return opened[0], opened[1], opened[2]

    def _check(self, descriptor: int, *, is_memory: bool) -> None:
        found = os.fstat(descriptor)
        fits = stat.S_ISREG(found.st_mode) if is_memory else stat.S_ISFIFO(found.st_mode)
        if not fits or found.st_uid != os.geteuid():
            raise OSError(f"a descriptor of process {self.pid} is not one of a loader of this user")
        if is_memory and fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            raise OSError(f"the memory of process {self.pid} is not sealed")
