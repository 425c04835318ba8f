"""Which sequences a step trains on, and a thread that has them ready.

global batch of a step     | dp0: mb0 mb1 mb2 mb3 | dp1: mb0 mb1 mb2 mb3 |     chosen by (seed, step) alone
"""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from telemetry.errors import UsageError
from trainer.config import TrainConfig
from trainer.data.tokens import Tokens


class Batch(NamedTuple):
    """One step of one data-parallel rank; both [sequences, length] int64, on the rank's device."""

    inputs: Tensor
    targets: Tensor


class Batches:
    """Batches of a data-parallel rank by step: the same for the same seed, and together the same on any grid."""

    def __init__(self, tokens: Tokens, config: TrainConfig, *, dp_index: int) -> None:
        self._tokens = tokens
        self._seed = config.seed
        self._length = config.model.sequence_length
        self._rows = config.sequences_per_rank
        self._first = dp_index * self._rows
        self._total = self._rows * config.parallel.dp
        if len(tokens) <= self._length:
            raise UsageError(
                f"{len(tokens)} tokens are too few for sequences of {self._length}",
                hint="use more text, or a smaller sequence_length",
            )

    def at(self, step: int) -> Batch:
        """The batch of ``step``."""
        offsets = np.random.default_rng((self._seed, step)).integers(len(self._tokens) - self._length, size=self._total)
        mine = offsets[self._first : self._first + self._rows]
        rows = np.stack([self._tokens[offset : offset + self._length + 1] for offset in mine]).astype(np.int64)
        text = torch.from_numpy(rows)
        return Batch(text[:, :-1].contiguous(), text[:, 1:].contiguous())


class Loader:
    """Has the next batches ready in a thread of its own, at most ``depth`` of them."""

    def __init__(self, batch_at: Callable[[int], Batch], *, steps: range, depth: int, device: torch.device) -> None:
        self._batch_at = batch_at
        self._steps = steps
        self._device = device
        self._ready: queue.Queue[Batch | BaseException] = queue.Queue(depth)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._fill, name="batches", daemon=True)

    def __enter__(self) -> "Loader":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join()

    def next(self) -> Batch:
        """The batch of the next step; waits until it is there. On a GPU its copy is queued, not awaited."""
        batch = self._ready.get()
        if isinstance(batch, BaseException):
            raise batch
        return Batch(*(side.to(self._device, non_blocking=True) for side in batch))

    def _fill(self) -> None:
        for batch in self._produce():
            while not self._closed.is_set():
                try:
                    self._ready.put(batch, timeout=0.2)
                    break
                except queue.Full:
                    continue
            if self._closed.is_set():
                return

    def _produce(self) -> Iterator[Batch | BaseException]:
        try:
            for step in self._steps:
                batch = self._batch_at(step)
                yield Batch(*(side.pin_memory() for side in batch)) if self._device.type == "cuda" else batch
        except Exception as error:  # the training thread raises it, where it is seen
            yield error
