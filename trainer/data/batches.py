"""Chooses the sequences of a step, and prepares them in a thread ahead of the step.

global batch of a step     | dp0: mb0 mb1 mb2 mb3 | dp1: mb0 mb1 mb2 mb3 |     chosen by (seed, step) alone
"""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from telemetry.errors import UsageError
from trainer.config import TrainConfig
from trainer.data.tokens import TokenFile, Tokens

Rows = npt.NDArray[np.int64]


class Batch(NamedTuple):
    """One step of one data-parallel rank; both [sequences, length] int64, on the rank's device."""

    inputs: Tensor
    targets: Tensor


class BatchSource(Protocol):
    """Returns batches by step. Only one thread may call :meth:`at`."""

    def at(self, step: int) -> Batch:
        """The batch of ``step``. Can wait for a long time."""

    def close(self) -> None:
        """Free the resources. A call of :meth:`at` in another thread ends soon."""


class Batches:
    """Batches of a data-parallel rank by step. The same seed gives the same batches. All data-parallel ranks together
    get the same sequences on any grid."""

    def __init__(self, tokens: Tokens, config: TrainConfig, *, dp_index: int) -> None:
        self._tokens = tokens
        self._seed = config.seed
        self._length = config.model.sequence_length
        self._vocab_size = config.model.vocab_size
        self._rows = config.sequences_per_rank
        self._first = dp_index * self._rows
        self._total = self._rows * config.parallel.dp
        if len(tokens) <= self._length:
            raise UsageError(
                f"{len(tokens)} tokens are too few for sequences of {self._length}",
                hint="use more text, or a smaller sequence_length",
            )

    def at(self, step: int) -> Batch:
        """The batch of ``step``.

        Raises:
            UsageError: a token in it is outside the vocabulary.
            UnreadableError: the file of tokens cannot be read.
        """
        rows = np.empty((self._rows, self._length + 1), dtype=np.int64)
        self.fill(step, rows)
        return batch_of(rows)

    def fill(self, step: int, rows: Rows, after_row: Callable[[], Any] = lambda: None) -> None:
        """Write the sequences of ``step`` into ``rows``, [sequences, length + 1]. Call ``after_row`` after each.

        Raises: as :meth:`at`.
        """
        offsets = np.random.default_rng((self._seed, step)).integers(len(self._tokens) - self._length, size=self._total)
        mine = offsets[self._first : self._first + self._rows]
        for row, offset in zip(rows, mine, strict=True):
            row[:] = self._tokens[offset : offset + self._length + 1]
            after_row()
        if rows.max() >= self._vocab_size:
            self._refuse(rows, mine)

    def close(self) -> None:
        """Close the file of tokens."""
        if isinstance(self._tokens, TokenFile):
            self._tokens.close()

    def _refuse(self, rows: Rows, offsets: npt.NDArray[np.int64]) -> None:
        row, column = np.argwhere(rows >= self._vocab_size)[0]
        place = self._tokens.path if isinstance(self._tokens, TokenFile) else "the text"
        raise UsageError(
            f"token {rows[row, column]} at position {offsets[row] + column} of {place} is outside the vocabulary of "
            f"{self._vocab_size}",
            hint="raise vocab_size, or make the tokens again with the tokenizer of this model",
        )


def batch_of(rows: Rows) -> Batch:
    """A copy of ``rows``, [sequences, length + 1], as inputs and targets. ``rows`` can be overwritten afterwards."""
    text = torch.from_numpy(rows)
    inputs, targets = (side.clone(memory_format=torch.contiguous_format) for side in (text[:, :-1], text[:, 1:]))
    return Batch(inputs, targets)


def check_data(tokens: Tokens, config: TrainConfig) -> None:
    """Read the first batch, so that unusable data is refused before any rank starts. No file stays open.

    Raises: as :meth:`Batches.at`.
    """
    batches = Batches(tokens, config, dp_index=0)
    batches.at(0)
    batches.close()


class Loader:
    """Prepares the next batches in a thread, at most ``depth`` of them."""

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
        """Wait for the batch of the next step, and return it. On a GPU its copy is queued, not awaited."""
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
        except Exception as error:  # ``next`` raises it in the training thread
            yield error
