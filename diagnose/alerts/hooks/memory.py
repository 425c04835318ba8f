"""A hook that keeps what it is told: for tests, and for whoever looks from inside the process."""

from collections.abc import Sequence

from diagnose.alerts.hooks.interface import HookError
from diagnose.alerts.notice import Notice


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
