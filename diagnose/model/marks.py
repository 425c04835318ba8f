"""What happened on hosts that is worth a line and no finding: a link that was lost and came back."""

from dataclasses import dataclass

from diagnose.detectors.nic_flap import stretched_words
from diagnose.model.outages import Effect
from diagnose.model.view import RunView


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened, with its time on that host's clock."""

    name: str
    host: str
    device: str
    at_ns: int
    seconds: float
    """How long it lasted; so far, where it does still."""
    count: int
    """How many, where the kernel counted several that nobody saw."""
    lasts: bool
    held_s: float
    """How long the job stood still over it."""
    stretched: tuple[str, ...]
    """Which operations, in words."""


def marks_of(view: RunView) -> tuple[Mark, ...]:
    """The newest losses of link, in order of time."""
    return tuple(_link_mark(view, effect) for effect in view.effects)


def _link_mark(view: RunView, effect: Effect) -> Mark:
    outage = effect.outage
    return Mark(
        name="link-down",
        host=outage.host,
        device=outage.device,
        at_ns=outage.down_ns,
        seconds=outage.seconds(view.fleet.seen_ns),
        count=outage.count,
        lasts=outage.lasts,
        held_s=effect.held_s if effect.hurt else 0.0,
        stretched=tuple(stretched_words([effect])),
    )
