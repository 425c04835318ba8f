"""Batches that the loader of this host writes into shared memory, as one rank sees them. See ``host_memory.py``."""

import os
import select
import threading
import time

import telemetry
from telemetry.errors import UsageError
from telemetry.printable import log
from trainer.config import TrainConfig
from trainer.data.batches import Batch, batch_of
from trainer.data.host_memory import ANSWER, ERROR, REQUEST, HostMemory, Layout, LoaderAddress

POLL_MS = 200
FIRST_LOG_S = 10.0
HINT = "each rank reads the data itself with --no-shared-loader"


class SharedBatches:
    """A :class:`~trainer.data.batches.BatchSource` whose batches another process has prepared.

    Raises:
        UsageError: the loader has ended, or ``/proc`` does not let this process open its memory.
    """

    def __init__(self, address: LoaderAddress, config: TrainConfig, *, rank: int) -> None:
        self._pid = address.pid
        try:
            memory, self._requests, self._answers = address.open(rank)
        except OSError as error:
            raise UsageError(f"cannot open the memory of the data loader: {error}", hint=HINT) from error
        self._index = address.ranks.index(rank)
        self._memory = HostMemory(memory, Layout.of(config, address.ranks))
        os.close(memory)
        self._number = 0
        """Number of the loader that answered last."""
        self._closed = threading.Event()
        self._poll = select.poll()
        self._poll.register(self._answers, select.POLLIN)

    def at(self, step: int) -> Batch:
        """The batch of ``step``. Ask for steps in ascending order.

        Raises:
            UsageError: the loader cannot go on, or its keeper was killed.
        """
        self._memory.positions[self._index] = step
        self._request(step)
        began_s, log_s = time.monotonic(), FIRST_LOG_S
        while True:
            if self._poll.poll(POLL_MS):
                answer = self._answer()
                if answer == step:
                    return batch_of(self._memory.slot(self._memory.layout.rings[self._index], step))
            if self._closed.is_set():
                raise RuntimeError("the batches are closed")
            if time.monotonic() - began_s > log_s:
                log(f"waited {log_s:g} s for the batch of step {step} from the data loader, a child of {self._pid}")
                log_s *= 2

    def close(self) -> None:
        """End a call of :meth:`at`. Descriptors stay open until the process ends: that call uses them."""
        self._closed.set()

    def _request(self, step: int) -> None:
        try:
            os.write(self._requests, REQUEST.pack(self._index, step))
        except BrokenPipeError:
            raise self._keeper_ended() from None

    def _answer(self) -> int:
        """The step that is ready. It can be an earlier one: a new loader repeats the last answer."""
        message = os.read(self._answers, ANSWER.size)
        if not message:
            raise self._keeper_ended()
        number, answer = ANSWER.unpack(message)
        if answer == ERROR:
            raise self._memory.error()
        if number != self._number and self._index == 0:
            telemetry.mark("data-loader-restarted", f"loader {number} of this host prepares the batches now")
        self._number = number
        return int(answer)

    def _keeper_ended(self) -> UsageError:
        return UsageError(
            f"process {self._pid}, which restarts the data loader, has ended",
            hint="something killed it, such as the OOM killer: see dmesg. Start the training again",
        )
