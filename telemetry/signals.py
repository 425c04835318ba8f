"""How a command that works until it is told to end is told so."""

import signal
import threading
from queue import SimpleQueue


def ended_by_signals() -> threading.Event:
    """Set by SIGTERM and Ctrl-C, from a thread: a handler that set it might interrupt whoever just waits for it, and
    wait for ever itself. Putting into a SimpleQueue waits for nobody."""
    stop, told = threading.Event(), SimpleQueue[int]()

    def pass_on() -> None:
        told.get()
        stop.set()

    threading.Thread(target=pass_on, name="rankscope-signals", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: told.put(number))
    return stop
