"""The data loader of a host: one process that prepares the batches of all ranks there, ahead of their steps.

rank 0, 1 (dp0)    want 7              compute step 7                    want 8
loader                     fill 7          fill 8, fill 9: idle until a slot is free

Ranks of one data-parallel index read the same slots, so each sequence is read and converted once on this host.
"""

import os
import select
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

from trainer.config import TrainConfig
from trainer.data.batches import Batches
from trainer.data.host_memory import ANSWER, NONE, REQUEST, Ends, HostMemory, Layout, dp_indexes
from trainer.data.tokens import Tokens

BEAT_S = 1.0
ALIVE, FILLED = b".", b"+"
"""Messages to the keeper: the loader is alive; the loader is alive and has prepared a batch."""
_CHUNK_BYTES = 256 * REQUEST.size


class Work(NamedTuple):
    """A slot to be filled."""

    lead: int
    """Steps ahead of the slowest rank of the ring. The slot with the smallest lead is filled first."""
    ring: int
    step: int


class HostLoader:
    """The work of the loader process.

    ``number``: how many loaders of these ranks ran before. ``beats``: descriptor of a pipe to the keeper.
    """

    def __init__(
        self, config: TrainConfig, ranks: Sequence[int], tokens: Tokens, ends: Ends, *, number: int, beats: int
    ) -> None:
        layout = Layout.of(config, ranks)
        self._ends, self._number, self._beats = ends, number, beats
        self._memory = HostMemory(ends.memory, layout)
        self._num_steps = config.num_steps
        self._batches = [Batches(tokens, config, dp_index=index) for index in dp_indexes(config, ranks)]
        self._members = [
            [local for local, of in enumerate(layout.rings) if of == ring] for ring in range(len(self._batches))
        ]
        self._held = [[NONE] * layout.depth for _ in self._batches]
        """The step that each slot of each ring holds."""
        self._wanted: list[int] = self._memory.positions.tolist()
        """Local rank -> the step that it wants. After the start, only requests change this: the pipe orders the
        accesses to the memory."""
        self._answered = [NONE] * len(self._wanted)
        self._beat_s = 0.0
        self._requests = select.poll()
        self._requests.register(ends.requests[0], select.POLLIN)

    def run(self) -> NoReturn:
        """Run until the process is killed.

        Raises:
            RankscopeError: the data cannot be used.
        """
        while True:
            work = min(self._work(), default=None)
            if work is not None:
                self._fill(work)
            self._receive(timeout_s=0.0 if work else BEAT_S)
            self._answer()

    def _work(self) -> list[Work]:
        """For each ring the next step to prepare, if a slot is free."""
        found = []
        for ring, members in enumerate(self._members):
            low = min(self._wanted[local] for local in members)
            if low == NONE:
                continue
            ahead = range(low, min(low + self._memory.layout.depth, self._num_steps))
            missing = (step for step in ahead if self._held[ring][step % len(self._held[ring])] != step)
            found += [Work(step - low, ring, step) for step in missing][:1]
        return found

    def _fill(self, work: Work) -> None:
        slots = self._held[work.ring]
        slots[work.step % len(slots)] = NONE
        self._batches[work.ring].fill(work.step, self._memory.slot(work.ring, work.step), self._beat)
        slots[work.step % len(slots)] = work.step
        self._send(FILLED)

    def _receive(self, timeout_s: float) -> None:
        """Read the requests that are there, or wait for the first one."""
        if self._requests.poll(timeout_s * 1000):
            for local, step in REQUEST.iter_unpack(os.read(self._ends.requests[0], _CHUNK_BYTES)):
                self._want(local, step)
        self._beat()

    def _want(self, local: int, step: int) -> None:
        """Note the request of a rank. All ranks begin with the same step, so the first request in a ring also counts
        for its ranks that have not asked."""
        self._wanted[local] = max(step, self._wanted[local])
        for other in self._members[self._memory.layout.rings[local]]:
            if self._wanted[other] == NONE:
                self._wanted[other] = self._memory.positions[other] = step

    def _answer(self) -> None:
        for local, ring in enumerate(self._memory.layout.rings):
            step = self._wanted[local]
            if step != self._answered[local] and self._held[ring][step % len(self._held[ring])] == step:
                os.write(self._ends.answers[local][1], ANSWER.pack(self._number, step))
                self._answered[local] = step

    def _beat(self) -> None:
        """Tell the keeper, at most once a second, that this process works."""
        if time.monotonic() - self._beat_s >= BEAT_S:
            self._send(ALIVE)

    def _send(self, sign: bytes) -> None:
        self._beat_s = time.monotonic()
        with suppress(BlockingIOError):  # the keeper is stopped
            os.write(self._beats, sign)
