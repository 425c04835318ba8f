"""The samplers of a host's network: those that have anything to read.

open_network_samplers()            nic   rdma   tcp      one look a second
open_network_samplers(fine=True)   traffic               looks every ten milliseconds, beside the others
"""

import socket
from contextlib import suppress
from pathlib import Path

from telemetry.agent.samplers.interface import Sampler
from telemetry.agent.samplers.interfaces import InterfaceChoice
from telemetry.agent.samplers.kept_files import Descriptors
from telemetry.agent.samplers.link_events import LinkListener
from telemetry.agent.samplers.nic import NicSampler
from telemetry.agent.samplers.rdma import RdmaSampler
from telemetry.agent.samplers.tcp import TcpSampler
from telemetry.agent.samplers.traffic import TrafficSampler


def open_network_samplers(
    *,
    sysfs: Path = Path("/sys"),
    proc: Path = Path("/proc"),
    listen: bool = True,
    fine: bool = False,
    interfaces: tuple[str, ...] = (),
) -> list[Sampler]:
    """Probe once. With ``fine`` the one that reads bytes alone, else all the others.

    ``listen``: follow the kernel's news of links too, where ``sysfs`` shows the links of this network namespace.
    ``interfaces``: glob patterns of those wanted; empty: ``InterfaceChoice`` decides.
    """
    choice = InterfaceChoice(wanted=interfaces)
    descriptors = Descriptors()
    if fine:
        traffic = TrafficSampler(sysfs, choice=choice, descriptors=descriptors)
        return [traffic] if traffic.devices else []
    found: list[Sampler] = []
    if choice.found(sysfs / "class" / "net"):
        news = _listener(sysfs) if listen else None
        found.append(NicSampler(sysfs, choice=choice, news=news, descriptors=descriptors))
    rdma = RdmaSampler(sysfs, descriptors=descriptors)
    if rdma.devices:
        found.append(rdma)
    tcp = TcpSampler(proc, descriptors=descriptors)
    if tcp.retransmits() is not None:
        found.append(tcp)
    return found


def _listener(sysfs: Path) -> LinkListener | None:
    """None where netlink is not to be had, or ``sysfs`` is no picture of this network namespace."""
    with suppress(OSError, ValueError):
        for index, name in socket.if_nameindex():
            if int((sysfs / "class" / "net" / name / "ifindex").read_text()) != index:
                return None
        return LinkListener()
    return None
