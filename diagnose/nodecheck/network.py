"""Addresses of this machine's network interfaces, from the kernel."""

import fcntl
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from telemetry.errors import UsageError

SIOCGIFADDR = 0x8915
LOOPBACK = "lo"
SYS_NET = Path("/sys/class/net")


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A network interface with an IPv4 address."""

    name: str
    address: str
    speed_mbps: int | None
    """None where the driver does not say."""


def interfaces() -> list[Interface]:
    """Those that are up and have hardware behind them; where there is none any other, and the loopback at last."""
    found = [_interface(name) for _, name in socket.if_nameindex()]
    up = [one for one in found if one is not None]
    wired = [one for one in up if (SYS_NET / one.name / "device").exists()]
    return wired or [one for one in up if one.name != LOOPBACK] or up


def interface_named(name: str) -> Interface:
    """Raises:
    UsageError: there is none, or it has no IPv4 address or is down.
    """
    known = [known for _, known in socket.if_nameindex()]
    if name not in known:
        raise UsageError(f"no network interface {name!r}", hint=f"there are: {', '.join(known)}")
    found = _interface(name)
    if found is None:
        raise UsageError(f"interface {name!r} is down or has no IPv4 address", hint=f"see: ip address show {name}")
    return found


def interface_towards(host: str) -> str | None:
    """The interface whose address a connection to ``host`` has; None: not to be told."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing
        own = probe.getsockname()[0]
        if own.startswith("127."):
            return LOOPBACK
        return next((one.name for one in interfaces() if one.address == own), None)
    return None


def _interface(name: str) -> Interface | None:
    with suppress(OSError, ValueError):
        if (SYS_NET / name / "operstate").read_text().strip() in ("down", "lowerlayerdown", "notpresent"):
            return None
    try:
        return Interface(name=name, address=_address(name), speed_mbps=_speed_mbps(name))
    except OSError:
        return None


def _address(name: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        answer = fcntl.ioctl(asking, SIOCGIFADDR, struct.pack("256s", name.encode()))
    return socket.inet_ntoa(answer[20:24])


def _speed_mbps(name: str) -> int | None:
    with suppress(OSError, ValueError):
        speed = int((SYS_NET / name / "speed").read_text())
        return speed if speed > 0 else None
    return None
