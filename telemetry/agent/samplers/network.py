"""The network samplers of a host: those that find something to read.

    open_network_samplers()            nic   rdma   tcp      one sample a second
    open_network_samplers(fine=True)   traffic               one sample every ten milliseconds, beside the others

``tcp`` reads the segments that TCP retransmitted, over all connections of this network namespace:

    /proc/net/snmp   Tcp: RtoAlgorithm ... RetransSegs InErrs ...
                     Tcp: 1 ... 42 0 ...

``traffic`` reads only byte counters, many times a second: windows of ten milliseconds show what an average over a
second hides. It uses the same metrics as ``nic`` and ``rdma``, which report links, errors and devices.
"""

import socket
from contextlib import suppress
from pathlib import Path

from telemetry.agent.samplers.interface import GoneError, Sample, Sampler, counter
from telemetry.agent.samplers.kept_files import Descriptors, KeptFile
from telemetry.agent.samplers.link_events import LinkListener
from telemetry.agent.samplers.nic import InterfaceChoice, NicSampler
from telemetry.agent.samplers.rdma import DATA_FILES, WORD_BYTES, RdmaSampler, ports
from telemetry.host_metrics import Metric

RESCAN_EVERY = 3000
_NIC_FILES = ((Metric.NIC_RECEIVE_BYTES, "rx_bytes"), (Metric.NIC_SEND_BYTES, "tx_bytes"))


class TrafficSampler:
    """Byte counters of NICs and RDMA ports, for samples in quick succession."""

    name = "traffic"

    def __init__(
        self,
        sysfs: Path,
        *,
        choice: InterfaceChoice | None = None,
        descriptors: Descriptors | None = None,
        rescan_every: int = RESCAN_EVERY,
    ) -> None:
        self._net = sysfs / "class" / "net"
        self._infiniband = sysfs / "class" / "infiniband"
        self._choice = choice or InterfaceChoice()
        self._descriptors = descriptors or Descriptors()
        self._rescan_every = rescan_every
        self._num_samples = 0
        self._files: dict[tuple[str, str], tuple[KeptFile, int]] = {}
        """Metric and device -> the file, and the number of bytes that its unit stands for."""
        self._rescan()

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(device for _, device in self._files))

    def sample(self, at_ns: int) -> Sample:
        self._num_samples += 1
        if self._num_samples % self._rescan_every == 0:
            self._rescan()
            if not self._files and not self._net.is_dir() and not self._infiniband.is_dir():
                raise GoneError(f"{self._net} is gone")
        readings = (
            counter(metric, number * unit_bytes, device)
            for (metric, device), (file, unit_bytes) in self._files.items()
            if (number := file.number()) is not None
        )
        return Sample(readings=tuple(readings))

    def close(self) -> None:
        for file, _ in self._files.values():
            file.close()
        self._files.clear()

    def _rescan(self) -> None:
        """Open all files again: a name may now belong to another interface."""
        self.close()
        for name in self._choice.found(self._net):
            for metric, file in _NIC_FILES:
                self._add(metric, name, self._net / name / "statistics" / file, 1)
        for port in ports(self._infiniband):
            device = f"{port.parent.parent.name}/{port.name}"
            for file in DATA_FILES:
                self._add(f"rdma-{file}", device, port / "counters" / file, WORD_BYTES)

    def _add(self, metric: str, device: str, path: Path, unit_bytes: int) -> None:
        if path.is_file():
            self._files[metric, device] = KeptFile(path, self._descriptors), unit_bytes


_NAME = b"RetransSegs"


class TcpSampler:
    """Samples TCP counters of the host. The device of its readings is empty."""

    name = "tcp"

    def __init__(self, proc: Path, *, descriptors: Descriptors | None = None) -> None:
        self._file = KeptFile(proc / "net" / "snmp", descriptors or Descriptors())

    def sample(self, at_ns: int) -> Sample:
        retransmits = self.retransmits()
        if retransmits is None:
            return Sample()
        return Sample(readings=(counter(Metric.TCP_RETRANSMITS, retransmits),))

    def close(self) -> None:
        self._file.close()

    def retransmits(self) -> int | None:
        """The number of retransmitted segments; None if the kernel does not report it at the moment."""
        with suppress(OSError, ValueError, IndexError):
            names, values = (line.split() for line in self._file.read().splitlines() if line.startswith(b"Tcp:"))
            return int(values[names.index(_NAME)])
        return None


def open_network_samplers(
    *,
    sysfs: Path = Path("/sys"),
    proc: Path = Path("/proc"),
    listen: bool = True,
    fine: bool = False,
    interfaces: tuple[str, ...] = (),
) -> list[Sampler]:
    """The samplers that find something to read. With ``fine``, only ``traffic``, otherwise the other samplers.

    ``listen``: also use netlink if ``sysfs`` shows the links of this network namespace.
    ``interfaces``: glob patterns; if empty, the default of ``InterfaceChoice``.
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
    """A new listener; None without netlink, or if ``sysfs`` shows another network namespace."""
    with suppress(OSError, ValueError):
        for index, name in socket.if_nameindex():
            if int((sysfs / "class" / "net" / name / "ifindex").read_text()) != index:
                return None
        return LinkListener()
    return None
