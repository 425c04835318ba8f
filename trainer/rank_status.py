"""Exit statuses of ranks."""

import signal
from collections.abc import Mapping

from telemetry.process.signals import SIGNAL_BASE

FAILED = 1
"""Exit status of a rank that failed, also of a rank that lost its peer."""
NOT_FINITE = 65
"""Exit status of all ranks after a step whose loss or gradient norm is not finite, if checkpoints are on (EX_DATAERR of
sysexits.h)."""
NOT_FINITE_TEXT = "loss or gradient norm is not finite"
ENDED_EARLY = SIGNAL_BASE + signal.SIGTERM
"""Exit status of a rank that saved a checkpoint and ended on SIGTERM."""


def is_failure(status: int) -> bool:
    """Whether a rank that ended with ``status`` failed. ``status`` is -n if signal n killed the rank."""
    return status not in (0, ENDED_EARLY)


def causing(failures: Mapping[int, int]) -> list[int]:
    """The failed ranks that can be the cause. ``failures``: rank -> exit status. A rank that lost its peer ends with
    status 1, so ranks with a signal or another status are returned if there are any, else all."""
    return [rank for rank, status in failures.items() if status != FAILED] or list(failures)


def manner(status: int, reason: str = "") -> str:
    """How a process ended, as text. ``reason``: what the process itself reported, or empty."""
    ended = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    return f"{ended} ({reason})" if reason else ended
