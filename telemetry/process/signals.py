"""Ends a process after SIGTERM, SIGINT or SIGHUP: in an orderly way, once, and within a time limit.

first signal     the process starts to end, and a time limit is set
later signals    no effect: they cannot interrupt the end
limit            a thread ends a process that has not ended by then, with the exit status of the first signal
alarm            SIGALRM kills a process in which no thread can run either

Every process of rankscope can be killed at any moment without loss. So the limit never costs data.
"""

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LIMIT_S = 8.0
"""Time limit after SIGTERM and SIGHUP: no person waits."""
SHORT_LIMIT_S = 2.5
"""Time limit after SIGINT: a person waits."""
ALARM_AFTER_LIMIT_S = 0.3
SIGNAL_BASE = 128
"""Exit status of a process that ended on signal n: 128 + n."""
FROM_OUTSIDE = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP})
"""Exit statuses of processes that something else ended, such as the OOM killer. A process with an error of its own, or
on broken hardware, ends with another signal (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT)."""


def on_first_ending(act: Callable[[int], None], *, limit_s: float = LIMIT_S, for_all: bool = False) -> None:
    """Call ``act(number)`` in the main thread on the first ending signal. Further signals are ignored.

    ``limit_s``: how long the process may take to end after SIGTERM. ``for_all``: after SIGINT and SIGHUP too.
    A SIGHUP that is ignored already (``nohup``) stays ignored. Main thread only.
    """
    limits_s = {signal.SIGTERM: limit_s, signal.SIGINT: SHORT_LIMIT_S, signal.SIGHUP: LIMIT_S}
    if for_all:
        limits_s = dict.fromkeys(ENDING, limit_s)

    def end(number: int, _: object) -> None:
        for other in ENDING:
            signal.signal(other, _ignore)
        _limit_the_end(number, limits_s[signal.Signals(number)])
        act(number)

    for number in ENDING:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)


def ended_by_signals() -> threading.Event:
    """An event that a thread sets on the first ending signal. A signal handler must not set it: it could wait forever
    for the event's lock, held by the code that it interrupted. Putting into a SimpleQueue takes no lock."""
    stop, received = threading.Event(), SimpleQueue[int]()

    def set_stop() -> None:
        received.get()
        stop.set()

    threading.Thread(target=set_stop, name="rankscope-signals", daemon=True).start()
    on_first_ending(received.put)
    return stop


def raise_on_ending() -> None:
    """SIGINT raises KeyboardInterrupt, SIGTERM and SIGHUP raise SystemExit, once."""
    on_first_ending(_raise)


def default_on_ending() -> None:
    """Restore Python's default handlers, so that the exit status of a rank shows the signal."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _raise(number: int) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(SIGNAL_BASE + number)


def _limit_the_end(number: int, limit_s: float) -> None:
    """Set the time limit. A thread of ``_thread`` takes no lock to start: the interrupted code may hold a lock of
    ``threading``. The kernel's timer also ends a process whose threads do not return to Python."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limit_s + ALARM_AFTER_LIMIT_S)
    with suppress(RuntimeError):  # no further thread can start: the alarm remains
        _thread.start_new_thread(_exit_at, (limit_s, SIGNAL_BASE + number))


def _exit_at(limit_s: float, status: int) -> None:
    time.sleep(limit_s)
    os._exit(status)


def _ignore(number: int, _: object) -> None:
    """Do nothing. Unlike SIG_IGN, programs that this process starts do not inherit a handler."""
