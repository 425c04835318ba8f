"""Network interfaces of this host, and the rendezvous of nodes: a store that node 0 hosts at a known address.

The names of the rendezvous are torchrun's: ``--rdzv-endpoint HOST:PORT``, ``--node-rank I``, ``--nnodes N``.
"""

import fcntl
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from telemetry.errors import UsageError

SIOCGIFADDR = 0x8915
LOOPBACK = "lo"
SYS_NET = Path("/sys/class/net")
HINT = (
    "use the same --rdzv-endpoint HOST:PORT (an address of node 0) and --nnodes on every node, "
    "and a different --node-rank on each"
)
MAX_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A network interface with an IPv4 address."""

    name: str
    address: str
    speed_mbps: int | None
    """None if the driver does not report it."""


def interfaces() -> list[Interface]:
    """Active interfaces with hardware. If there are none: all others, and the loopback only if it is the only one."""
    active = [found for _, name in socket.if_nameindex() if (found := _interface(name)) is not None]
    wired = [found for found in active if (SYS_NET / found.name / "device").exists()]
    return wired or [found for found in active if found.name != LOOPBACK] or active


def interface_named(name: str) -> Interface:
    """The active interface with this name.

    Raises:
        UsageError: there is no such interface, or it is down or has no IPv4 address.
    """
    names = [known for _, known in socket.if_nameindex()]
    if name not in names:
        raise UsageError(f"no network interface {name!r}", hint=f"interfaces of this host: {', '.join(names)}")
    found = _interface(name)
    if found is None:
        raise UsageError(f"interface {name!r} is down or has no IPv4 address", hint=f"see: ip address show {name}")
    return found


def interface_towards(host: str) -> str | None:
    """The interface that connections to ``host`` use; None if unknown."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing
        own = probe.getsockname()[0]
        if own.startswith("127."):
            return LOOPBACK
        return next((found.name for found in interfaces() if found.address == own), None)
    return None


def _interface(name: str) -> Interface | None:
    with suppress(OSError, ValueError):
        if (SYS_NET / name / "operstate").read_text().strip() in ("down", "lowerlayerdown", "notpresent"):
            return None
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))
    except OSError:
        return None
    return Interface(name=name, address=socket.inet_ntoa(answer[20:24]), speed_mbps=_speed_mbps(name))


def _speed_mbps(name: str) -> int | None:
    with suppress(OSError, ValueError):
        speed = int((SYS_NET / name / "speed").read_text())
        return speed if speed > 0 else None
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """How one node finds the others."""

    endpoint: str
    index: int
    nodes: int
    interface: str | None = None
    """None: the interface that leads to the endpoint."""
    patience_s: float = 60.0
    """How long to wait for the other nodes."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: an endpoint without a port, fewer than two nodes, or an index out of range.
        """
        host, _, port = self.endpoint.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) <= MAX_PORT:
            raise UsageError(f"{self.endpoint!r} is not HOST:PORT", hint=HINT)
        if self.nodes < 2:
            raise UsageError(f"--nnodes is {self.nodes}, but at least 2 nodes are needed", hint=HINT)
        if not 0 <= self.index < self.nodes:
            raise UsageError(f"--node-rank is {self.index}, but it must be 0 to {self.nodes - 1}", hint=HINT)

    @property
    def host(self) -> str:
        return self.endpoint.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.endpoint.rpartition(":")[2])


def listen(rendezvous: Rendezvous) -> socket.socket:
    """The socket of the store. It listens on the endpoint's address only.

    Raises:
        UsageError: the address is not of this host, or the port is in use.
    """
    with _own_address(rendezvous) as family:
        return socket.create_server((rendezvous.host, rendezvous.port), family=family, backlog=rendezvous.nodes)


def find_address(rendezvous: Rendezvous) -> None:
    """Check that the store can listen, without listening.

    Raises:
        UsageError: as for :func:`listen`.
    """
    with _own_address(rendezvous) as family, socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((rendezvous.host, rendezvous.port))


@contextmanager
def _own_address(rendezvous: Rendezvous) -> Iterator[socket.AddressFamily]:
    try:
        yield socket.getaddrinfo(rendezvous.host, rendezvous.port, type=socket.SOCK_STREAM)[0][0]
    except OSError as error:
        hint = "node 0 hosts the store: --rdzv-endpoint must be a free port at an address of node 0"
        raise UsageError(f"cannot listen on {rendezvous.endpoint}: {error.strerror}", hint=hint) from error
