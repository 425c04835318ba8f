"""A command: started for each notice, told by standard input and a few variables.

    argv, verbatim, never a shell       stdin: the body of a webhook (see ``shape.py``), then its end
    exit 0: it has it                   environment: RANKSCOPE_ALERT_*, and of ours what no secret is in
    exit 65: it never will              stderr: the first line is told; stdout goes nowhere
    else, or too slow: again later

The command leads a process group of its own. Where it is too slow, all of the group is killed; and where the watcher
ends before it, however that ends:

    watcher --pipe--> warden       end of the pipe: the watcher is gone, the group is killed
       |                           killed by the watcher: the command is over
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
"""Exit status of a command that will never take this notice."""
MAX_WORDS = 4096
"""Of one variable, and of what is kept of stderr."""
_WARDEN = """
import os, signal, sys
sys.stdin.buffer.read()
os.killpg(int(sys.argv[1]), signal.SIGKILL)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandKeys:
    """``[hooks.NAME]`` with ``type = "command"``."""

    argv: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    """Program and arguments. Nothing is expanded in them."""
    pass_env: tuple[str, ...] = ()
    """Further variables that it inherits, by name: the secrets that it needs itself."""
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
            raise UsageError(f"hook {name}: program {self._keys.argv[0]!r} not found", hint="name its full path")

    def send(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            status, said = self._run(notice)
            if status == 0:
                continue
            how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
            first, *_ = said.strip().splitlines() or [""]
            secrets = [os.environ.get(name, "") for name in self._keys.pass_env]
            told = f"{how}: {without(secrets, first)}" if first else how
            raise self._error(told, again=status != REFUSED)

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
                said = _watch(process, deadline_s)
        except OSError as error:  # no room for another process
            raise self._error(str(error)) from error
        if said is None:
            raise self._error(f"killed: did not finish within {self._keys.timeout_s:g} s")
        return process.returncode, said.decode("utf-8", "replace")

    def _error(self, told: str, *, again: bool = True) -> HookError:
        return HookError(f"hook {self.name}: {self._keys.argv[0]}: {one_line(told, 300)}", again=again)


def command_environment(notice: Notice, ours: Mapping[str, str], passed: Sequence[str]) -> dict[str, str]:
    """What a command finds in its environment: nothing else of ``ours`` than a few harmless names and ``passed``."""
    told = {
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
    return inherited | {PREFIX + name: cut(printable(as_utf8(words)), MAX_WORDS) for name, words in told.items()}


def _watch(process: subprocess.Popen[bytes], deadline_s: float) -> bytes | None:
    """The start of stderr once the command is over; None where it was not by the deadline."""
    assert process.stderr is not None
    ended = os.pidfd_open(process.pid)
    try:
        with selectors.DefaultSelector() as ready:
            ready.register(ended, selectors.EVENT_READ)
            ready.register(process.stderr, selectors.EVENT_READ)
            return _listen(ready, ended, deadline_s)
    finally:
        os.close(ended)


@contextmanager
def _killed_in_the_end(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kills the group that the process leads, unless it ended by itself: then what it left behind it meant to."""
    try:
        yield
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _killed_with_us(group: int) -> Iterator[None]:
    """Whatever ends this process within the block ends ``group``, too: an alert is told again, not from many mouths.

    A signal at the parent's death would reach the command alone, not its children.
    """
    command = [sys.executable, "-I", "-S", "-c", _WARDEN, str(group)]
    null = subprocess.DEVNULL
    # A session of its own: Ctrl-C is not for it.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True) as warden:
        try:
            yield
        finally:
            warden.kill()


def _listen(ready: selectors.BaseSelector, ended: int, deadline_s: float) -> bytes | None:
    said = b""
    while (left_s := deadline_s - time.monotonic()) > 0:
        for key, _ in sorted(ready.select(left_s), key=lambda one: one[0].fd == ended):
            if key.fd == ended:
                return said
            piece = os.read(key.fd, 65536)
            said = (said + piece)[:MAX_WORDS]
            if not piece:
                ready.unregister(key.fileobj)
    return None
