"""Runs a program of the user in the foreground. This process forwards signals to it, and ends with its exit status.

signal from the terminal        is not forwarded: the kernel sends it to the whole process group
signal of another process       is forwarded. If it was sent to the whole group, the program gets it twice
this process is killed          the kernel sends SIGTERM to the program
"""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from telemetry.files.access import users_umask
from telemetry.process.child_process import end_with_parent
from telemetry.process.signals import SIGNAL_BASE

PASSED_ON = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT),
)
CHECK_S = 1.0
"""Longest time between two checks whether the program has ended. SIGCHLD normally starts a check at once, but a thread
of a library may receive this signal instead."""
SI_KERNEL = 0x80
"""``si_code`` of a signal that the kernel sent, such as after Ctrl-C at the terminal."""
NOT_STARTED = 127


def run_in_foreground(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a program to its end. Returns its exit status; 128 + n after signal n."""
    waited_for = {*PASSED_ON, signal.SIGCHLD}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the parent may ignore it: then the kernel would keep no exit status
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    try:
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            _become(command, environment, before, parent)
        return _wait_for(pid, waited_for)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait_for(pid: int, waited_for: set[signal.Signals]) -> int:
    while True:
        info = signal.sigtimedwait(waited_for, CHECK_S)
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else SIGNAL_BASE - code
        if info is not None and info.si_signo != signal.SIGCHLD and info.si_code != SI_KERNEL:
            with suppress(PermissionError):  # such as sudo
                os.kill(pid, info.si_signo)


def _become(
    command: Sequence[str], environment: Mapping[str, str], mask: "set[int | signal.Signals]", parent: int
) -> NoReturn:
    """Replace the forked child by the program."""
    try:
        end_with_parent(parent, signal.SIGTERM)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a program inherits that
            signal.signal(number, signal.SIG_DFL)
        if (umask := users_umask()) is not None:
            os.umask(umask)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvpe(command[0], list(command), dict(environment))
    except OSError as error:
        print(f"error: {command[0]}: {error.strerror}", file=sys.stderr, flush=True)
    finally:
        os._exit(NOT_STARTED)
