"""Hook that runs a command for each notice. The command reads standard input and a few variables.

    argv: used without a shell          stdin: the body of a webhook (see ``shape.py``)
    exit 0: accepted                    environment: RANKSCOPE_ALERT_*, and inherited variables without secrets
    exit 65: rejected for good          stderr: the first line is reported; stdout is ignored
    others, or too slow: retried

The command has its own process group. The whole group is killed if the command is too slow, or if the watcher ends
first, for any reason:

    watcher --pipe--> warden       end of the pipe: the watcher has ended, so the warden kills the group
       |                           the watcher kills the warden when the command has ended
       +--- command --- its children
"""

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import pydantic

from diagnose.alerts.hooks.interface import HookError
from diagnose.alerts.hooks.keys import ResendSeconds, Seconds, read_keys
from diagnose.alerts.hooks.shape import as_utf8, v4_body, without
from diagnose.alerts.notice import Notice
from telemetry.errors import UsageError
from telemetry.printable import cut, one_line, printable

INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
PREFIX = "RANKSCOPE_ALERT_"
REFUSED = os.EX_DATAERR
"""Exit status of a command that rejects this notice for good."""
MAX_TEXT = 4096
"""Largest length of a variable, and of the used part of stderr."""
_WARDEN = """
import os, signal, sys
sys.stdin.buffer.read()
os.killpg(int(sys.argv[1]), signal.SIGKILL)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandKeys:
    """``[hooks.NAME]`` with ``type = "command"``."""

    argv: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    """Program and arguments. They are used unchanged."""
    pass_env: tuple[str, ...] = ()
    """Names of further variables that the command inherits, such as secrets that it needs."""
    resend_s: ResendSeconds = 0.0
    timeout_s: Seconds = 30.0


class CommandHook:
    """Runs a command, one at a time."""

    batch = 1

    def __init__(self, name: str, table: Mapping[str, object]) -> None:
        self._keys = read_keys(CommandKeys, name, table)
        self.name = name
        self.resend_s = self._keys.resend_s
        if not shutil.which(self._keys.argv[0]):
            raise UsageError(f"hook {name}: program {self._keys.argv[0]!r} not found", hint="use its full path")

    def send(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            status, output = self._run(notice)
            if status == 0:
                continue
            ending = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
            first_line, *_ = output.strip().splitlines() or [""]
            secrets = [os.environ.get(name, "") for name in self._keys.pass_env]
            message = f"{ending}: {without(secrets, first_line)}" if first_line else ending
            raise self._error(message, again=status != REFUSED)

    def _run(self, notice: Notice) -> tuple[int, str]:
        body = json.dumps(v4_body(self.name, [notice])).encode()
        try:
            with os.fdopen(os.memfd_create("notice"), "w+b") as stdin:
                stdin.write(body)
                stdin.seek(0)
                process = subprocess.Popen(
                    self._keys.argv,
                    stdin=stdin,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env=command_environment(notice, os.environ, self._keys.pass_env),
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            raise self._error(str(error)) from error
        deadline_s = time.monotonic() + self._keys.timeout_s
        try:
            with process, _killed_in_the_end(process), _killed_with_us(process.pid):
                output = _watch(process, deadline_s)
        except OSError as error:  # no further process can be started
            raise self._error(str(error)) from error
        if output is None:
            raise self._error(f"killed: did not finish within {self._keys.timeout_s:g} s")
        return process.returncode, output.decode("utf-8", "replace")

    def _error(self, message: str, *, again: bool = True) -> HookError:
        return HookError(f"hook {self.name}: {self._keys.argv[0]}: {one_line(message, 300)}", again=again)


def command_environment(notice: Notice, ours: Mapping[str, str], passed: Sequence[str]) -> dict[str, str]:
    """The environment of a command. From ``ours`` it has only variables without secrets, and those in ``passed``."""
    values = {
        "STATUS": str(notice.status),
        "FINGERPRINT": notice.fingerprint,
        "NUMBER": str(notice.number),
        "NAME": notice.labels.get("alertname", ""),
        "SEVERITY": str(notice.severity),
        "RUN_ID": notice.labels.get("run_id", ""),
        "HOST": notice.labels.get("host", ""),
        "RANK": notice.labels.get("rank", ""),
        "SUMMARY": notice.summary,
        "LINK": notice.link,
    }
    inherited = {name: ours[name] for name in (*INHERITED, *passed) if name in ours}
    return inherited | {PREFIX + name: cut(printable(as_utf8(text)), MAX_TEXT) for name, text in values.items()}


def _watch(process: subprocess.Popen[bytes], deadline_s: float) -> bytes | None:
    """The start of stderr, after the command has ended. None if it did not end before the deadline."""
    assert process.stderr is not None
    ended = os.pidfd_open(process.pid)
    try:
        with selectors.DefaultSelector() as ready:
            ready.register(ended, selectors.EVENT_READ)
            ready.register(process.stderr, selectors.EVENT_READ)
            return _read_until_end(ready, ended, deadline_s)
    finally:
        os.close(ended)


@contextmanager
def _killed_in_the_end(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill the group of the process if the process still runs at the end of the block.

    If it has ended by itself, its children that still run are kept: the command may have started them on purpose.
    """
    try:
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _killed_with_us(group: int) -> Iterator[None]:
    """Kill the process group ``group`` if this process ends within the block.

    Otherwise a restarted watcher would run the command for the same alert at the same time.

    A parent-death signal would reach only the command, not its children.
    """
    command = [sys.executable, "-I", "-S", "-c", _WARDEN, str(group)]
    null = subprocess.DEVNULL
    # In its own session it does not receive Ctrl-C.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True) as warden:
        try:
            yield
        finally:
            warden.kill()


def _read_until_end(ready: selectors.BaseSelector, ended: int, deadline_s: float) -> bytes | None:
    output = b""
    while (left_s := deadline_s - time.monotonic()) > 0:
        for key, _ in sorted(ready.select(left_s), key=lambda event: event[0].fd == ended):
            if key.fd == ended:
                return output
            piece = os.read(key.fd, 65536)
            output = (output + piece)[:MAX_TEXT]
            if not piece:
                ready.unregister(key.fileobj)
    return None
