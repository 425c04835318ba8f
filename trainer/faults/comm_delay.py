"""Makes every operation between ranks take longer, so that overlap is visible on a machine without a network.

    issue ...... all ranks are there, gloo has moved the data ......... due
                                                          |-- delay --|          a timer: the core is free

An operation completes one delay after gloo has completed it. So a collective starts when its last member has come, and
a transfer when both sides have, as with NCCL. A thread waits for each operation, so the rank can compute in the
meantime. Results do not change.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from telemetry.record.collectives.process_group import TracedGroup
from telemetry.record.collectives.torch_groups import COLLECTIVES
from telemetry.topology import AXES
from trainer.parallel.mesh import Grid

MAX_OPERATIONS = 1024
"""Operations in progress at once. Each takes a thread that sleeps."""
OPERATIONS = frozenset((*COLLECTIVES, "send", "recv"))


def delay_operations(grid: Grid, delay_s: float) -> None:
    """Delay the collectives and transfers of the grid's groups and of the group of all ranks.

    Only traced groups support this.
    """
    threads = ThreadPoolExecutor(MAX_OPERATIONS, thread_name_prefix="delayed")
    default = dist.group.WORLD
    for group in (default, *(grid.mesh.get_group(axis) for axis in AXES)):
        if isinstance(group, TracedGroup) and not isinstance(group.inner, DelayedGroup):
            group.inner = DelayedGroup(group.inner, delay_s, threads)  # type: ignore[assignment]  # used by its methods


class DelayedGroup:
    """Passes everything on to ``inner``, and delays the work of its operations."""

    def __init__(self, inner: dist.ProcessGroup, delay_s: float, threads: ThreadPoolExecutor) -> None:
        self._inner = inner
        self._delay_s = delay_s
        self._threads = threads

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._delayed(found) if name in OPERATIONS else found

    def _delayed(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def issue(*arguments: Any, **keywords: Any) -> Any:
            work = operation(*arguments, **keywords)
            return work if work is None else DelayedWork(work, self._threads.submit(self._complete, work))

        return issue

    def _complete(self, work: Any) -> None:
        work.wait()
        time.sleep(self._delay_s)


class DelayedWork:
    """A work that is complete when its thread has ended."""

    def __init__(self, inner: Any, completion: "Future[None]") -> None:
        self._inner = inner
        self._completion = completion

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Block until the work is complete. Raises the error of the operation, also the error of its timeout."""
        self._completion.result(timeout.total_seconds() or None)
        return True

    synchronize = wait

    def is_completed(self) -> bool:
        return self._completion.done()

    def get_future(self) -> "torch.futures.Future[Any]":
        """The future of the operation, with the delay."""
        delayed: torch.futures.Future[Any] = torch.futures.Future()
        result = self._inner.get_future()

        def complete(completion: "Future[None]") -> None:
            error = completion.exception()
            delayed.set_exception(error) if isinstance(error, Exception) else delayed.set_result(result.value())

        self._completion.add_done_callback(complete)
        return delayed
