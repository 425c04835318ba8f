"""Functions of a framework that an adapter replaces, because the framework has no callback there.

A replacement calls the original with the same arguments, and returns or raises what it does.
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
    """Call ``see`` with the arguments of each call of a method, before it. ``see`` must not raise."""
    plain = getattr(owner, name)
    if hasattr(plain, REPLACED):
        return

    @wraps(plain)
    def run(*arguments: Any, **keywords: Any) -> Any:
        see(*arguments, **keywords)
        return plain(*arguments, **keywords)

    replace(owner, name, run)
