"""Network interfaces: carrier, speed, bytes, errors, and every loss of a link exactly once.

    netlink --messages--> Carrier.take ---.
                                          +--> events       one sample: messages first, then the files, so that the
    sysfs  ----files----> Carrier.sample -'--> readings     kernel's counts complete what messages left out

A new interface is added at once if netlink reports it, otherwise within ``rescan_every`` samples. An interface that
disappears is reported as DEVICE_GONE. Speed is read after a change and every ``rescan_every`` samples, because some
drivers query their firmware for it.

The sampler reads every Ethernet or InfiniBand interface of the network namespace that sends and receives itself: NICs,
bonds, and veth pairs that a container or a test uses as its NIC. It leaves out

- names of loopbacks, bridges, tunnels, and a container's end on the host (``LEFT_OUT``),
- bridges, VLANs and tunnels by their type: they repeat the traffic of the link below,
- ports of a bridge without hardware: veth pairs of containers,

unless the interface is selected by name. If there are more than ``at_most``, hardware comes first, then order by name.
"""

import fnmatch
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from telemetry.agent.samplers.carrier import Carrier, CarrierFiles
from telemetry.agent.samplers.interface import Event, GoneError, Reading, Sample, counter, level
from telemetry.agent.samplers.kept_files import Descriptors, KeptFile, names_in
from telemetry.agent.samplers.link_events import LinkMessage, LinkNews, LinkState
from telemetry.errors import UsageError
from telemetry.host_metrics import Happening, Metric

LEFT_OUT = (
    *("lo", "docker*", "br-*", "virbr*", "lxc*", "lxd*", "veth*", "cali*", "cni*", "cilium*", "flannel*", "weave*"),
    *("kube-*", "nodelocaldns", "ovs-*", "vxlan*", "geneve*", "gre*", "sit*", "tunl*", "ip6tnl*", "erspan*", "wg*"),
    *("tun*", "tap*", "vnet*", "ifb*", "dummy*", "bonding_masters"),
)
_ETHERNET, _INFINIBAND = "1", "32"
_REPEATS_ANOTHER = frozenset({"bridge", "vlan", "macvlan", "ipvlan", "macvtap", "vxlan", "geneve", "gre", "gretap"})


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceChoice:
    """Which interfaces are sampled: by the rule of this module, or by selected names.

    Raises:
        UsageError: ``at_most`` is below 1.
    """

    wanted: tuple[str, ...] = ()
    """Glob patterns. If given, only these are used."""
    at_most: int = 64

    def __post_init__(self) -> None:
        if self.at_most < 1:
            raise UsageError(f"at_most is {self.at_most} network interfaces", hint="use at least 1")

    def admits(self, name: str) -> bool:
        """Whether the name alone allows the interface."""
        if self.wanted:
            return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.wanted)
        return not _IS_LEFT_OUT(name)

    def found(self, net: Path) -> list[str]:
        """Names under ``<sysfs>/class/net`` to sample."""
        names = [name for name in names_in(net) if self.admits(name) and (net / name).is_dir()]
        chosen = names if self.wanted else [name for name in names if _carries_its_own(net / name)]
        return sorted(chosen, key=lambda name: (not (net / name / "device").exists(), name))[: self.at_most]


def _carries_its_own(interface: Path) -> bool:
    if _text(interface / "type") not in ("", _ETHERNET, _INFINIBAND) or (interface / "tun_flags").exists():
        return False
    kind = re.search(r"^DEVTYPE=(\S+)", _text(interface / "uevent"), re.MULTILINE)
    if kind and kind[1] in _REPEATS_ANOTHER:
        return False
    return (interface / "device").exists() or not (interface / "brport").exists()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


_IS_LEFT_OUT = re.compile("|".join(map(fnmatch.translate, LEFT_OUT))).match


RESCAN_EVERY = 30
_UNKNOWN_SPEED = 0xFFFF_FFFF
_STATISTICS = (
    (Metric.NIC_RECEIVE_BYTES, ("rx_bytes",)),
    (Metric.NIC_SEND_BYTES, ("tx_bytes",)),
    (Metric.NIC_ERRORS, ("rx_errors", "tx_errors")),
    (Metric.NIC_DROPS, ("rx_dropped", "tx_dropped", "rx_missed_errors")),
)


class NicSampler:
    """Samples the interfaces of a network namespace. It closes ``news``. Without ``news``, it only reads files."""

    name = "nic"

    def __init__(
        self,
        sysfs: Path,
        *,
        choice: InterfaceChoice | None = None,
        news: LinkNews | None = None,
        descriptors: Descriptors | None = None,
        rescan_every: int = RESCAN_EVERY,
    ) -> None:
        self._net = sysfs / "class" / "net"
        self._choice = choice or InterfaceChoice()
        self._news = news
        self._descriptors = descriptors or Descriptors()
        self._rescan_every = rescan_every
        self._num_samples = 0
        self._interfaces: dict[str, _Interface] = {}
        self._rescan(0)

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(self._interfaces)

    def sample(self, at_ns: int) -> Sample:
        self._num_samples += 1
        events, wants_rescan = self._take_news()
        if wants_rescan or self._num_samples % self._rescan_every == 0:
            events += self._rescan(at_ns)
        readings: list[Reading] = []
        for interface in tuple(self._interfaces.values()):
            try:
                events += interface.sample(at_ns)
                readings += interface.readings()
            except OSError:
                events.append(self._retire(interface, at_ns))
        if not self._interfaces and not self._net.is_dir():
            raise GoneError(f"{self._net} is gone")
        return Sample(readings=tuple(readings), events=tuple(sorted(events, key=lambda event: event.at_ns)))

    def close(self) -> None:
        if self._news is not None:
            self._news.close()
        for interface in self._interfaces.values():
            interface.close()
        self._interfaces.clear()

    def _take_news(self) -> tuple[list[Event], bool]:
        """New events, and whether interfaces appeared, disappeared or changed their names."""
        if self._news is None:
            return [], False
        by_index = {interface.index: interface for interface in self._interfaces.values()}
        events: list[Event] = []
        wants_rescan = False
        for message in self._news.drain():
            interface = by_index.get(message.index)
            if interface is not None and interface.matches(message):
                events += interface.take(message)
                wants_rescan |= message.is_deleted
            else:
                wants_rescan |= self._choice.admits(message.name)
        return events, wants_rescan

    def _rescan(self, at_ns: int) -> list[Event]:
        gone = [interface for interface in self._interfaces.values() if not interface.is_still_there()]
        events = [self._retire(interface, at_ns) for interface in gone]
        for interface in self._interfaces.values():
            interface.try_again()
        for name in self._choice.found(self._net):
            if name not in self._interfaces and len(self._interfaces) < self._choice.at_most:
                self._interfaces[name] = _Interface(self._net / name, self._descriptors)
        return events

    def _retire(self, interface: "_Interface", at_ns: int) -> Event:
        interface.close()
        del self._interfaces[interface.name]
        gone_ns, text = interface.gone_ns or at_ns, "the interface no longer exists"
        return Event(at_ns=gone_ns, device=interface.name, name=Happening.DEVICE_GONE, text=text)


class _Interface:
    def __init__(self, folder: Path, descriptors: Descriptors) -> None:
        self.name = folder.name
        self.index = 0
        self.gone_ns = 0
        """Time at which the kernel reported the end of the interface; 0 without such a message."""
        self._folder = folder
        self._address = ""
        self._identify()
        self._last_ns = 0
        self._files = CarrierFiles(folder, descriptors)
        self._carrier = Carrier(self.name, self._files)
        self._speed = KeptFile(folder / "speed", Descriptors(0))
        self._speed_mbps: int | None = None
        self._wants_speed = True
        self._statistics = [
            (metric, [KeptFile(folder / "statistics" / name, descriptors) for name in names])
            for metric, names in _STATISTICS
        ]

    def matches(self, message: LinkMessage) -> bool:
        """Whether a message is about this interface.

        An index alone is not enough: files may show another network namespace than netlink.
        """
        return (message.name, message.address) == (self.name, self._address) and bool(self._address)

    def is_still_there(self) -> bool:
        """Whether the name still belongs to the same interface."""
        before = self.index
        self._identify()
        return self._folder.is_dir() and self.index == before

    def take(self, message: LinkMessage) -> list[Event]:
        if message.is_deleted:
            self.gone_ns = message.at_ns
            return []
        self._last_ns = message.at_ns
        return self._carrier.take(message)

    def sample(self, at_ns: int) -> list[Event]:
        """Read the carrier and return new events. Raises OSError if the interface is gone."""
        was = self._carrier.state
        events = self._carrier.sample(max(at_ns, self._last_ns))  # a message may be newer than the sample
        if events or self._carrier.state is not was:
            self._wants_speed = True
        return events

    def readings(self) -> list[Reading]:
        found = [level(Metric.NIC_UP, self._carrier.state is LinkState.UP, self.name)] if self._carrier.state else []
        if (counts := self._carrier.counts) is not None:
            found.append(counter(Metric.NIC_CARRIER_DOWNS, counts.downs, self.name))
            found.append(counter(Metric.NIC_CARRIER_UPS, counts.ups, self.name))
        if (speed := self._current_speed()) is not None:
            found.append(level(Metric.NIC_SPEED_MBPS, speed, self.name))
        for metric, files in self._statistics:
            for file in files:
                file.number()
            numbers = [file.last for file in files if file.last is not None]
            if numbers:
                found.append(counter(metric, sum(numbers), self.name))
        return found

    def try_again(self) -> None:
        self._wants_speed = True
        self._files.try_again()
        for _, files in self._statistics:
            for file in files:
                file.try_again()

    def close(self) -> None:
        self._files.close()
        for _, files in self._statistics:
            for file in files:
                file.close()

    def _current_speed(self) -> int | None:
        """Mbit/s; None if the link is down or its driver reports -1 or an error."""
        if self._wants_speed:
            self._wants_speed = False
            self._speed.try_again()
            speed = self._speed.number() if self._carrier.state is LinkState.UP else None
            self._speed_mbps = speed if speed is not None and 0 < speed < _UNKNOWN_SPEED else None
        return self._speed_mbps

    def _identify(self) -> None:
        self.index = 0
        with suppress(OSError, ValueError):
            self.index = int((self._folder / "ifindex").read_text())
        with suppress(OSError):
            self._address = (self._folder / "address").read_text(errors="replace").strip()
