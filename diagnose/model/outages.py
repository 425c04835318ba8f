"""Times without a link of a network card, what they did to the job, and how long the job waits for its network.

    eth0  ------.          .-----.  .--------.
     up         |  3.1 s   |     |  |        |            an outage: from link-down to link-up
    down        '----------'     '--'        '-----...    the last outage lasts

A *flap* is an outage that ended. The kernel counts flaps between two samples of the agent: their times are not known
exactly. A port that was down when the agent started is no outage: it may have no cable.

How long a job waits for its network before it fails is its *patience*, the smaller of two limits:

    NCCL over InfiniBand/RoCE   a lost packet is sent again RETRY_CNT times, each 4.096 us x 2^NCCL_IB_TIMEOUT
    everything                  the timeout of the process group

If the job set no limit, NCCL's own defaults (20 and 7) hold: about 30 s. Older versions use 18 and 7: 7.5 s.
(InfiniBand's local ACK timeout; MegaScale, section 6.3: set it larger than a flap.)
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from diagnose.model.fleet import NS_PER_S, HostEvent
from diagnose.ranges import name_some
from telemetry.host_metrics import LINK_ALREADY_DOWN, Happening
from telemetry.stages import Stage

GPU = "gpu"
"""Prefix of the names of GPUs. Their events are no link losses: the detector ``gpu-error`` reports a lost GPU."""
SAMPLE_NS = 2 * NS_PER_S
"""Flaps that were only counted happened within this time before the event."""
MOST_DIGITS = 6
"""Digits of a plausible count between two samples."""
MOST_STRETCHED = 8
"""Number of operations in a list."""
LINK_EVENTS = (
    Happening.LINK_DOWN,
    Happening.LINK_UP,
    Happening.LINK_FLAPS,
    Happening.LINK_TAKEN_DOWN,
    Happening.DEVICE_GONE,
)
TRANSFERS = (Stage.FORWARD_SEND, Stage.FORWARD_RECV, Stage.BACKWARD_SEND, Stage.BACKWARD_RECV)
IB_TIMEOUT, IB_RETRIES = 20, 7
IB_UNIT_S = 4.096e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """One link loss, or several that were only counted. Times are the wall clock of the host."""

    host: str
    device: str
    down_ns: int
    up_ns: int
    """0 while it lasts."""
    count: int = 1
    is_exact: bool = True
    """Whether the times are those of the link, not of the samples before and after."""
    manner: str = "lost its link"
    """What happened, as text that follows the device."""

    @property
    def lasts(self) -> bool:
        return not self.up_ns

    def seconds(self, now_ns: int = 0) -> float:
        """Duration in seconds. An outage that lasts is measured up to ``now_ns``."""
        return max(0, (self.up_ns or now_ns) - self.down_ns) / NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretched:
    """Operations of one stage and group that an outage delayed."""

    stage: Stage
    ranks: tuple[int, ...]
    """The group, or the two sides of a transfer."""
    step: int
    held_s: float
    """The longest delay beyond the usual time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one outage did to the job."""

    outage: Outage
    stretched: tuple[Stretched, ...]
    """Operations that the link itself delayed, the longest first: groups with ranks of this host and of another."""
    held_up: tuple[int, ...]
    """All delayed ranks, on any host."""
    held_s: float
    """The longest delay of all."""
    steps: tuple[int, ...]

    @property
    def hurt(self) -> bool:
        return bool(self.stretched)


def describe_stretched(effects: Iterable[Effect]) -> list[str]:
    """``grads-all-reduce of ranks 0, 4 took 3.1 s longer in step 7``, the longest first."""
    longest = sorted((each for effect in effects for each in effect.stretched), key=lambda each: -each.held_s)
    return [
        f"{each.stage.label} {_between(each)} took {each.held_s:.1f} s longer in step {each.step}"
        for each in longest[:MOST_STRETCHED]
    ]


def _between(operation: Stretched) -> str:
    if operation.stage in TRANSFERS and len(operation.ranks) == 2:
        return "between ranks {} and {}".format(*operation.ranks)
    return f"of ranks {name_some(operation.ranks)}"


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
            first_ns = max(before_ns, event.at_ns - SAMPLE_NS)
            yield _outage(event, first_ns, event.at_ns, count=_count(event.text), is_exact=False)
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


def _count(text: str) -> int:
    first = text.split(maxsplit=1)[0] if text.strip() else ""
    plausible = first.isascii() and first.isdigit() and len(first) <= MOST_DIGITS
    return max(1, int(first)) if plausible else 1


def may_carry(meta: Sequence[Mapping[str, str]], device: str) -> bool:
    """Whether collectives may use this network card. True if no rank reported its network settings.

    ``meta``: what ranks reported about themselves (``RunView.meta``). gloo uses the interfaces in GLOO_SOCKET_IFNAME.
    NCCL uses the InfiniBand cards that NCCL_IB_HCA selects. With NCCL_IB_DISABLE it uses sockets on the interfaces
    that NCCL_SOCKET_IFNAME selects.
    """
    settings = next((of_rank for of_rank in meta if of_rank.get("backend")), {})
    is_rdma = "/" in device  # a port of an RDMA card is called mlx5_0/1
    match settings.get("backend"), settings.get("NCCL_IB_DISABLE") == "1", is_rdma:
        case "gloo", _, _:
            names = settings.get("GLOO_SOCKET_IFNAME", "")
            return not names or _is_selected(f"={names}", _card(device))
        case "nccl", True, _:
            return not is_rdma and _is_selected(settings.get("NCCL_SOCKET_IFNAME", ""), _card(device))
        case "nccl", False, True:
            return _is_selected(settings.get("NCCL_IB_HCA", ""), device.replace("/", ":"))
        case _:
            return True


def _is_selected(setting: str, name: str) -> bool:
    """How NCCL selects cards: ``eth,ib`` by prefix, ``=eth0,eth1`` by name, ``^...`` and ``^=...`` all others.

    For an RDMA card, ``mlx5_0:1``, the setting may leave out the port.
    """
    others = setting.startswith("^")
    listed = setting.removeprefix("^")
    exact = listed.startswith("=")
    names = [part.strip() for part in listed.removeprefix("=").split(",") if part.strip()]
    if not others:
        names = [_card(part) for part in names]
    matches: Callable[[str], bool] = (lambda part: part in (name, name.partition(":")[0])) if exact else name.startswith
    return not names or any(map(matches, names)) != others


def _card(device: str) -> str:
    """The name of the card: ``eth0`` for ``eth0.7`` and ``eth0``."""
    return device.partition(".")[0].strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds that a collective may stall, and the setting that limits them. 0 if nothing is known."""

    seconds: float = 0.0
    setting: str = ""

    def survives(self, outage_s: float) -> bool | None:
        """Whether a job survives an outage of this length. None if nothing is known."""
        return None if not self.seconds else outage_s < self.seconds


def patience_of(meta: Iterable[Mapping[str, str]]) -> Patience:
    """The shortest patience of all ranks, from what they reported about themselves (``RunView.meta``)."""
    limits = [limit for of_rank in meta for limit in limits_of(of_rank)]
    return min(limits, key=lambda limit: limit.seconds, default=Patience())


def limits_of(meta: Mapping[str, str]) -> Iterator[Patience]:
    """The limits of one rank: the timeout of collectives if it is known, and the retries of its card if it uses one."""
    backend = meta.get("backend", "")
    if timeout_s := _number(meta.get("collective_timeout_s", "")):
        yield Patience(seconds=timeout_s, setting=f"{backend or 'collective'} timeout {timeout_s:g} s")
    if backend == "nccl" and meta.get("NCCL_IB_DISABLE", "0") != "1":
        exponent = _number(meta.get("NCCL_IB_TIMEOUT", "")) or IB_TIMEOUT
        retries = _number(meta.get("NCCL_IB_RETRY_CNT", "")) or IB_RETRIES
        yield Patience(
            seconds=IB_UNIT_S * 2 ** min(exponent, 31) * retries,
            setting=f"NCCL_IB_TIMEOUT={exponent:g}, NCCL_IB_RETRY_CNT={retries:g}",
        )


def _number(text: str) -> float:
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0
