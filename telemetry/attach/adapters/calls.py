"""Replaces functions of a framework where the framework has no callback.

A replacement calls the original with the same arguments. It returns or raises what the original returns or raises.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from telemetry.attach.adapters.loop import LOOP
from telemetry.attach.seams import REPLACED, replace
from telemetry.stages import Stage


def record_calls(owner: Any, name: str, stage: Stage) -> None:
    """Record each call of a method as a stage, if it returns."""
    plain = getattr(owner, name)
    if hasattr(plain, REPLACED):
        return

    @wraps(plain)
    def run(*arguments: Any, **keywords: Any) -> Any:
        LOOP.begin_stage(stage)
        completed = False
        try:
            answer = plain(*arguments, **keywords)
            completed = True
            return answer
        finally:
            LOOP.end_stage(stage, completed=completed)

    replace(owner, name, run)


def see_calls(owner: Any, name: str, see: Callable[..., None]) -> None:
    """Before each call of a method, call ``see`` with the same arguments. ``see`` must not raise."""
    plain = getattr(owner, name)
    if hasattr(plain, REPLACED):
        return

    @wraps(plain)
    def run(*arguments: Any, **keywords: Any) -> Any:
        see(*arguments, **keywords)
        return plain(*arguments, **keywords)

    replace(owner, name, run)
