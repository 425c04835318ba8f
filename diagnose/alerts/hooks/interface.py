"""The interface of hooks, which send notices to receivers.

A hook sends notices and returns when the receiver has accepted them. It has no queue and tries once. The dispatcher
(``diagnose/alerts/dispatch.py``) is responsible for order, retries with back-off and isolation from other hooks. It
calls ``send`` only from the thread of that hook. ``send`` may block, at most for its timeout.

``MemoryHook`` keeps notices in memory, for tests and for code in the same process.
"""

from collections.abc import Sequence
from typing import Protocol

from diagnose.alerts.notice import Notice


class HookError(Exception):
    """The receiver did not accept the notices.

    ``again``: True if the same notices may be accepted later (refused connection, timeout, 429, 5xx, expired token).
    False if they never will be (400): they are dropped, and reported on stderr. ``after_s``: the wait that the receiver
    requested. ``hint``: what the user can repair; empty if only waiting helps. ``status``: the status of the HTTP
    answer, or 0 if there is no answer.
    """

    def __init__(self, message: str, *, again: bool, after_s: float = 0.0, hint: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.again = again
        self.after_s = after_s
        self.hint = hint
        self.status = status


class Hook(Protocol):
    """Sends notices to a receiver."""

    name: str
    """Its name in the configuration."""
    resend_s: float
    """Send a firing alert again after this many seconds. 0: never."""
    batch: int
    """Largest number of notices in a call."""

    def send(self, notices: Sequence[Notice]) -> None:
        """Send ``notices``, of any alerts, in order. On return the receiver has accepted them.

        Raises:
            HookError: the receiver has not accepted them, or this is unknown.
        """


def passes_silences(hook: object) -> bool:
    """Whether a hook passes silences on to its receiver: it has the attribute ``passes_silences``.

    Such a hook also receives alerts that people have silenced, with ``Notice.silence``. Its receiver then notifies
    nobody about them.
    """
    return bool(getattr(hook, "passes_silences", False))


class MemoryHook:
    """Keeps notices in ``taken``. While ``refusals`` has errors, each call removes the first one and raises it."""

    def __init__(self, name: str = "memory", *, resend_s: float = 0.0, batch: int = 1) -> None:
        self.name = name
        self.resend_s = resend_s
        self.batch = batch
        self.taken: list[Notice] = []
        self.refusals: list[HookError] = []

    def send(self, notices: Sequence[Notice]) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.taken.extend(notices)
