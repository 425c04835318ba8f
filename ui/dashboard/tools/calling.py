"""Calls operations in threads: one slow operation at a time, so that pages and other calls do not wait for them."""

import logging
from typing import Any, NamedTuple

from anyio import CapacityLimiter, to_thread

from telemetry.errors import RankscopeError
from telemetry.stores.interface import Reader
from ui.dashboard.data import Reads
from ui.dashboard.tools.operations import Operation, as_json
from ui.dashboard.tools.parameters import Parameters

log = logging.getLogger(__name__)

QUICK_AT_ONCE, SLOW_AT_ONCE = 4, 1
"""How many quick and slow operations run at the same time. An analysis of a large run takes seconds and about a
gigabyte."""
MAX_WAITING = 32
"""Largest number of waiting calls of each kind."""


class BusyError(RankscopeError):
    """Too many calls wait."""


class FailedError(RankscopeError):
    """An operation failed because of a defect in rankscope. The traceback is in the log."""


class Answer(NamedTuple):
    """A result, as text and as values."""

    text: str
    """The result as JSON text."""
    values: dict[str, Any]


class Caller:
    """Answers calls from one event loop."""

    def __init__(self, reads: Reads, reader: Reader) -> None:
        self._reads = reads
        self._reader = reader
        self._quick, self._slow = CapacityLimiter(QUICK_AT_ONCE), CapacityLimiter(SLOW_AT_ONCE)

    async def call(self, operation: Operation, asked: Parameters) -> Answer:
        """The answer to a call.

        Raises:
            UsageError: see ``Operation.answer``, or the answer is too long.
            UnreachableError: the store or the collector does not answer.
            BusyError: too many calls wait.
            FailedError: the operation failed for another reason.
        """
        limiter = self._slow if operation.is_slow else self._quick
        if limiter.statistics().tasks_waiting >= MAX_WAITING:
            raise BusyError("too many calls are waiting", hint="retry later, with fewer calls at once")
        return await to_thread.run_sync(self._answer, operation, asked, limiter=limiter)

    def _answer(self, operation: Operation, asked: Parameters) -> Answer:
        try:
            return Answer(*as_json(operation.answer(asked, self._reads, self._reader)))
        except RankscopeError:
            raise
        except Exception as error:
            log.exception("the operation %s failed", operation.name)
            raise FailedError(
                f"{operation.name} failed: {type(error).__name__}",
                hint="read the log of the server, and report this defect",
            ) from error
