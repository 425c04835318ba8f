"""Ports of collectors that commands start on loopback. Each job has its own.

A command claims a port before its collector starts, and as long as the job runs. Between the choice of a port and the
start of the collector, and while a collector is restarted, no other job takes the port and receives its records.

A claim is a socket with an abstract name. The kernel removes the name when the last process that holds the socket ends.
Forked children hold it too. Like ports, such names belong to the network namespace.
"""

import hashlib
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from telemetry.errors import UsageError

MOST_TRIES = 20


@contextmanager
def claimed_port(wanted: int, folder: Path) -> Iterator[int]:
    """A free port for the collector of the job in ``folder``: ``wanted``, or another one if it is taken or claimed.

    Raises:
        UsageError: no port is free.
    """
    for port in (wanted, *[0] * MOST_TRIES):
        with ExitStack() as claim:
            if (free := _free_port(port)) and _claim(free, folder, claim):
                yield free
                return
    raise UsageError("no free port on 127.0.0.1", hint="end a server that uses one")


@contextmanager
def reclaimed_port(earlier: int, folder: Path) -> Iterator[int]:
    """The port of an earlier command for the job in ``folder``, or another port if a different job has claimed it.

    If nodes of the earlier command still run, they hold the claim, and send their records to this port.

    Raises:
        UsageError: no port is free.
    """
    with ExitStack() as claim:
        is_own = _claim(earlier, folder, claim) or _is_claimed(_name(earlier, folder))
        yield earlier if is_own else claim.enter_context(claimed_port(0, folder))


def _free_port(wanted: int) -> int:
    """``wanted`` if no program listens on it on loopback, else 0. If ``wanted`` is 0, any free port."""
    with suppress(OSError), socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", wanted))
        return int(probe.getsockname()[1])
    return 0


def _claim(port: int, folder: Path, claim: ExitStack) -> bool:
    """Hold the port until ``claim`` ends. Returns False if another job holds it. The second name identifies the job."""
    for name in (_name(port), _name(port, folder)):
        try:
            claim.enter_context(socket.socket(socket.AF_UNIX)).bind(name)
        except OSError:
            return False
    return True


def _is_claimed(name: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.bind(name)
        except OSError:
            return True
    return False


def _name(port: int, folder: Path | None = None) -> str:
    of = hashlib.sha256(bytes(folder.resolve())).hexdigest()[:16] if folder else ""
    return f"\0rankscope-port-{port}-{of}"
