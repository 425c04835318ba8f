"""Hook that writes one line for each notice, to stderr or at the end of a file.

    2026-11-21T20:33:07.5Z firing critical hung-collective run_id=monday host=gpu-003: rank 5 has not entered ... | ...

A line is written completely or not at all, so several writers can share a file. The file may be moved at any time.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from diagnose.alerts.hooks.interface import HookError
from diagnose.alerts.hooks.keys import Batch, ResendSeconds, Text, read_keys
from diagnose.alerts.hooks.shape import stamp
from diagnose.alerts.notice import Notice, Status
from telemetry.errors import UsageError
from telemetry.files.access import file_mode
from telemetry.printable import one_line

MAX_LINE = 2000
_IN_EACH_LINE = ("alertname", "severity")
"""Labels that are not repeated in the list of labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogKeys:
    """``[hooks.NAME]`` with ``type = "log"``."""

    path: Text | None = None
    """File to append to. Default: stderr."""
    resend_s: ResendSeconds = 0.0
    batch: Batch = 100


class LogHook:
    """Writes lines."""

    def __init__(self, name: str, table: Mapping[str, object]) -> None:
        keys = read_keys(LogKeys, name, table)
        self.name = name
        self.resend_s = keys.resend_s
        self.batch = keys.batch
        self._path = Path(keys.path) if keys.path else None
        if self._path and not self._path.parent.is_dir():
            raise UsageError(
                f"hook {name}: folder {self._path.parent} does not exist", hint="create it, or change path"
            )

    def send(self, notices: Sequence[Notice]) -> None:
        lines = "".join(f"{log_line(notice)}\n" for notice in notices)
        try:
            if self._path:
                _append(self._path, lines.encode("utf-8", "replace"))
            else:
                sys.stderr.write(lines)
                sys.stderr.flush()
        except (OSError, ValueError) as error:
            raise HookError(f"hook {self.name}: {error}", again=True) from error


def log_line(notice: Notice) -> str:
    """``notice`` in one line."""
    over = notice.status is Status.RESOLVED
    status = "still-firing" if notice.repeated and not over else str(notice.status)
    labels = [f"{name}={value}" for name, value in notice.labels.items() if value and name not in _IN_EACH_LINE]
    head = [
        stamp(notice.ends_ns if over else notice.starts_ns),
        status,
        str(notice.severity),
        notice.labels.get("alertname", "alert"),
        *labels,
    ]
    tail = [text for text in (notice.summary, notice.cost, notice.next_step, notice.link) if text]
    return one_line(f"{' '.join(head)}: {' | '.join(tail)}", MAX_LINE)


def _append(path: Path, lines: bytes) -> None:
    # O_NONBLOCK: a pipe without a reader gives an error, and does not block.
    number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, file_mode())
    try:
        if os.write(number, lines) != len(lines):
            raise OSError(f"{path} is full")
    finally:
        os.close(number)
