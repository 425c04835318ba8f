"""Where nodes meet: a store at an address that all of them know; node 0 hosts it.

The names are torchrun's: ``--rdzv-endpoint HOST:PORT``, ``--node-rank I``, ``--nnodes N``.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from telemetry.errors import UsageError

HINT = "on every node the same --rdzv-endpoint HOST:PORT (an address of node 0) and --nnodes, and its own --node-rank"
MAX_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """One node's way to the others."""

    endpoint: str
    index: int
    nodes: int
    interface: str | None = None
    """None: the one that leads to the endpoint."""
    patience_s: float = 60.0
    """So long others may take to come."""

    def __post_init__(self) -> None:
        """Raises:
        UsageError: an endpoint without a port, fewer than two nodes, an index that is not among them.
        """
        host, _, port = self.endpoint.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
            raise UsageError(f"{self.endpoint!r} is no HOST:PORT", hint=HINT)
        if self.nodes < 2:
            raise UsageError(f"{self.nodes} nodes cannot meet", hint=HINT)
        if not 0 <= self.index < self.nodes:
            raise UsageError(f"node {self.index} is not among {self.nodes}: they count from 0", hint=HINT)

    @property
    def host(self) -> str:
        return self.endpoint.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.endpoint.rpartition(":")[2])


def listen(rendezvous: Rendezvous) -> socket.socket:
    """The socket of the store, on the endpoint's address alone.

    Raises:
        UsageError: it is not ours, or taken.
    """
    with _an_address_of_ours(rendezvous) as family:
        return socket.create_server((rendezvous.host, rendezvous.port), family=family, backlog=rendezvous.nodes)


def find_address(rendezvous: Rendezvous) -> None:
    """Tell early, and to nobody else, whether the store can listen.

    Raises:
        UsageError: the endpoint is not ours, or taken.
    """
    with _an_address_of_ours(rendezvous) as family, socket.socket(family) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tried.bind((rendezvous.host, rendezvous.port))


@contextmanager
def _an_address_of_ours(rendezvous: Rendezvous) -> Iterator[socket.AddressFamily]:
    try:
        yield socket.getaddrinfo(rendezvous.host, rendezvous.port, type=socket.SOCK_STREAM)[0][0]
    except OSError as error:
        hint = "node 0 hosts the store: --rdzv-endpoint must be a free port at an address of its own"
        raise UsageError(f"cannot listen on {rendezvous.endpoint}: {error.strerror}", hint=hint) from error
