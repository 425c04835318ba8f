"""Ports for servers that a command starts on loopback."""

import socket
from contextlib import suppress

from telemetry.errors import UsageError


def free_port(wanted: int) -> int:
    """``wanted`` if it is free on loopback, else any free port."""
    for port in (wanted, 0):
        with suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise UsageError("no free port on 127.0.0.1", hint="end a server that uses one")
