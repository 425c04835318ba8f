"""A check that is to be made."""

from collections.abc import Callable
from dataclasses import dataclass

from diagnose.nodecheck.result import CheckResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to call, and what to say of it should it not return."""

    check: str
    subject: str
    call: Callable[[], CheckResult]
    deadline_s: float
