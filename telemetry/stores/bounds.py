"""What a question may take of the engine, and how it is told that it asked for too much."""

import math
import re

from telemetry.errors import UsageError

_CODE = re.compile(r"Code: (\d+)")
_TOO_LONG = {159, 160}
_TOO_MUCH = {158, 307, 396}
_SENSELESS = {27, 36, 41, 43, 53, 62, 69, 70, 72, 153, 440}
"""Engine's codes for what its parameters made of a question: a limit below zero, a period of zero, a list too long."""


def bounded(sql: str, max_seconds: float | None) -> str:
    """``sql`` that the engine gives up after ``max_seconds``. It must not have ``SETTINGS`` of its own."""
    if max_seconds is None:
        return sql
    return f"{sql.rstrip()} SETTINGS max_execution_time = {math.ceil(max_seconds)}, timeout_overflow_mode = 'throw'"


def fault_of_question(told: str) -> UsageError | None:
    """The engine's error as one of who asked; None where it is not: then asking again may help."""
    found = _CODE.search(told)
    code = int(found[1]) if found else 0
    if code in _TOO_LONG:
        return UsageError(
            "the question takes too long to answer",
            hint="ask about fewer steps or ranks, or raise RANKSCOPE_QUERY_SECONDS where the collector runs",
        )
    if code in _TOO_MUCH or (code == 241 and "for query" in told):
        return UsageError("the question needs too much memory", hint="ask about fewer steps or ranks")
    if code in _SENSELESS:
        return UsageError(
            "the question makes no sense with these parameters", hint="are its limits and periods above zero?"
        )
    return None
