"""Which network interfaces are sampled.

Every Ethernet or InfiniBand interface of the network namespace that carries traffic of its own: NICs, bonds, and veth
pairs that a container or a test uses as its NIC. Left out are

- names of loopbacks, bridges, tunnels, and a container's end on the host (``LEFT_OUT``),
- bridges, VLANs and tunnels by their type: they repeat the traffic of the link below,
- ports of a bridge without hardware: veth pairs of containers,

unless the interface is selected by name. If there are more than ``at_most``, hardware comes first, then order by name.
"""

import fnmatch
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from telemetry.errors import UsageError

LEFT_OUT = (
    *("lo", "docker*", "br-*", "virbr*", "lxc*", "lxd*", "veth*", "cali*", "cni*", "cilium*", "flannel*", "weave*"),
    *("kube-*", "nodelocaldns", "ovs-*", "vxlan*", "geneve*", "gre*", "sit*", "tunl*", "ip6tnl*", "erspan*", "wg*"),
    *("tun*", "tap*", "vnet*", "ifb*", "dummy*", "bonding_masters"),
)
_ETHERNET, _INFINIBAND = "1", "32"
_REPEATS_ANOTHER = frozenset({"bridge", "vlan", "macvlan", "ipvlan", "macvtap", "vxlan", "geneve", "gre", "gretap"})


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceChoice:
    """The rule above, or names asked for.

    Raises:
        UsageError: a bound that leaves nothing.
    """

    wanted: tuple[str, ...] = ()
    """Glob patterns; where given, these alone decide."""
    at_most: int = 64

    def __post_init__(self) -> None:
        if self.at_most < 1:
            raise UsageError(f"at most {self.at_most} network interfaces", hint="select at least 1")

    def admits(self, name: str) -> bool:
        """Whether a name alone speaks for it."""
        if self.wanted:
            return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.wanted)
        return not _IS_LEFT_OUT(name)

    def found(self, net: Path) -> list[str]:
        """Names under ``<sysfs>/class/net`` that are worth a sample now."""
        names = [name for name in _listed(net) if self.admits(name) and (net / name).is_dir()]
        chosen = names if self.wanted else [name for name in names if _carries_its_own(net / name)]
        return sorted(chosen, key=lambda name: (not (net / name / "device").exists(), name))[: self.at_most]


def _carries_its_own(interface: Path) -> bool:
    if _text(interface / "type") not in ("", _ETHERNET, _INFINIBAND) or (interface / "tun_flags").exists():
        return False
    kind = re.search(r"^DEVTYPE=(\S+)", _text(interface / "uevent"), re.MULTILINE)
    if kind and kind[1] in _REPEATS_ANOTHER:
        return False
    return (interface / "device").exists() or not (interface / "brport").exists()


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))


_IS_LEFT_OUT = _any_of(LEFT_OUT).match
