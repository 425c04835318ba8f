"""The interface of hooks, which send notices to receivers.

A hook sends what it is given and returns when the receiver has taken it. It keeps no queue and tries once: order,
retries with back-off and isolation from other hooks are the dispatcher's (``diagnose/alerts/dispatch.py``), which
calls ``send`` from a thread of that hook alone. It may block for its timeout and no longer.

``MemoryHook`` keeps notices in memory: for tests and for code in the same process.
"""

from collections.abc import Sequence
from typing import Protocol

from diagnose.alerts.notice import Notice


class HookError(Exception):
    """The receiver did not take it.

    ``again``: whether the same notices may be taken later (refused connection, timeout, 429, 5xx, a token that has run
    out); False where they never will be (400: they are dropped, and told on stderr). ``after_s``: how long the receiver
    asked to wait. ``hint``: what whoever set the hook up may mend; empty where only time helps.
    """

    def __init__(self, message: str, *, again: bool, after_s: float = 0.0, hint: str = "") -> None:
        super().__init__(message)
        self.again = again
        self.after_s = after_s
        self.hint = hint


class Hook(Protocol):
    """Somewhere to tell people."""

    name: str
    """As the configuration names it."""
    resend_s: float
    """While an alert fires, tell again after so many seconds; 0: once is enough."""
    batch: int
    """At most so many notices a call."""

    def send(self, notices: Sequence[Notice]) -> None:
        """Hand over ``notices``, of any alerts, in order. On return the receiver has them.

        Raises:
            HookError: it has not, or nobody knows.
        """


class MemoryHook:
    """Holds notices in ``taken``. As long as there is one in ``refusals``, the first is raised and gone."""

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
