"""Times for which a NIC had no link, from what its host told.

    eth0  ------.          .-----.  .--------.
     up         |  3.1 s   |     |  |        |            an outage: from link-down to link-up
    down        '----------'     '--'        '-----...    the last one lasts

A *flap* is an outage that ended. Flaps that were over before anybody looked are counted by the kernel: their times are
not known exactly. A port that was down when an agent began to look lost nothing: there may be no cable.

Which network cards carry the job's collectives, as far as its own settings tell.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from diagnose.model.fleet import HostEvent
from telemetry.host_metrics import LINK_ALREADY_DOWN, Happening
from telemetry.stages import Stage

NS_PER_S = 1_000_000_000
GPU = "gpu"
"""How devices begin that are no cards: one that disappears is told by gpu-error."""
LOOK_NS = 2 * NS_PER_S
"""Flaps that were only counted happened within so long before they were told."""
MOST_DIGITS = 6
"""Of a count between two looks that can be."""
LINK_EVENTS = (
    Happening.LINK_DOWN,
    Happening.LINK_UP,
    Happening.LINK_FLAPS,
    Happening.LINK_TAKEN_DOWN,
    Happening.DEVICE_GONE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """One loss of link, or several that were only counted. Times are the wall clock of the host."""

    host: str
    device: str
    down_ns: int
    up_ns: int
    """0 while it lasts."""
    count: int = 1
    is_exact: bool = True
    """Whether the times are those of the link, not of two looks around it."""
    manner: str = "lost its link"
    """What happened to it, in words that follow the device."""

    @property
    def lasts(self) -> bool:
        return not self.up_ns

    def seconds(self, now_ns: int = 0) -> float:
        """How long it was down; of one that lasts, up to ``now_ns``."""
        return max(0, (self.up_ns or now_ns) - self.down_ns) / NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretched:
    """Operations of one stage and group that stood over an outage."""

    stage: Stage
    ranks: tuple[int, ...]
    """The group, or the two sides."""
    step: int
    held_s: float
    """The longest beyond its usual time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Of one outage on the job."""

    outage: Outage
    stretched: tuple[Stretched, ...]
    """By the link itself: groups of the host's ranks that leave the host. The longest first."""
    held_up: tuple[int, ...]
    """All ranks that stood, on any host."""
    held_s: float
    """The longest of all."""
    steps: tuple[int, ...]

    @property
    def hurt(self) -> bool:
        return bool(self.stretched)


def find_outages(events: Iterable[HostEvent]) -> list[Outage]:
    """All outages, in order of time."""
    by_device: dict[tuple[str, str], list[HostEvent]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.at_ns):
        if event.name in LINK_EVENTS and not event.device.startswith(GPU):
            by_device[event.host, event.device].append(event)
    found = (outage for of_device in by_device.values() for outage in _of_device(of_device))
    return sorted(found, key=lambda outage: outage.down_ns)


def _of_device(events: list[HostEvent]) -> Iterator[Outage]:
    opened: HostEvent | None = None
    before_ns = 0
    for event in events:
        if event.name == Happening.LINK_FLAPS:
            first_ns = max(before_ns, event.at_ns - LOOK_NS)
            yield _outage(event, first_ns, event.at_ns, count=_number(event.text), is_exact=False)
        elif event.name == Happening.LINK_UP:
            if opened is not None:
                yield _outage(opened, opened.at_ns, event.at_ns)
            opened = None
        elif opened is None and not event.text.startswith(LINK_ALREADY_DOWN):
            opened = event
        before_ns = event.at_ns
    if opened is not None:
        yield _outage(opened, opened.at_ns, 0)


_MANNERS = {
    Happening.LINK_TAKEN_DOWN: "was taken down on its own host",
    Happening.DEVICE_GONE: "disappeared",
}


def _outage(event: HostEvent, down_ns: int, up_ns: int, *, count: int = 1, is_exact: bool = True) -> Outage:
    return Outage(
        host=event.host,
        device=event.device,
        down_ns=down_ns,
        up_ns=up_ns,
        count=count,
        is_exact=is_exact,
        manner=_MANNERS.get(Happening(event.name), "lost its link"),
    )


def _number(text: str) -> int:
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    plausible = first.isascii() and first.isdigit() and len(first) <= MOST_DIGITS
    return max(1, int(first)) if plausible else 1


def may_carry(words: Sequence[Mapping[str, str]], outage: Outage) -> bool:
    """Whether the collectives may go over the card of ``outage``. True where no rank says otherwise.

    ``words``: what ranks said about themselves (``RunView.words``). gloo sends over the interfaces that
    GLOO_SOCKET_IFNAME names. NCCL sends over InfiniBand, of the cards that NCCL_IB_HCA chooses; or, where it is kept
    off it (NCCL_IB_DISABLE), over sockets, of the interfaces that NCCL_SOCKET_IFNAME chooses.
    """
    told = next((one for one in words if one.get("backend")), {})
    device = outage.device
    match told.get("backend"), told.get("NCCL_IB_DISABLE") == "1", _is_rdma(device):
        case "gloo", _, _:
            names = told.get("GLOO_SOCKET_IFNAME", "")
            return not names or _is_chosen(f"={names}", _base(device))
        case "nccl", True, is_rdma:
            return not is_rdma and _is_chosen(told.get("NCCL_SOCKET_IFNAME", ""), _base(device))
        case "nccl", False, True:
            return _is_chosen(told.get("NCCL_IB_HCA", ""), device.replace("/", ":"))
        case _:
            return True


def _is_chosen(choice: str, name: str) -> bool:
    """NCCL's way to choose: ``eth,ib`` what begins so, ``=eth0,eth1`` these, ``^...`` and ``^=...`` all others.

    Of an RDMA card, ``mlx5_0:1``, a choice may leave out the port.
    """
    others = choice.startswith("^")
    listed = choice.removeprefix("^")
    exact = listed.startswith("=")
    names = [one.strip() for one in listed.removeprefix("=").split(",") if one.strip()]
    if not others:
        names = [_base(one) for one in names]
    among = any(_names(one, name) if exact else name.startswith(one) for one in names)
    return not names or among != others


def _names(one: str, name: str) -> bool:
    return name == one or name.partition(":")[0] == one


def _is_rdma(device: str) -> bool:
    """A port of an RDMA card is told as ``mlx5_0/1``."""
    return "/" in device


def _base(device: str) -> str:
    """``eth0.7`` and ``eth0`` are one card."""
    return device.partition(".")[0].strip()
