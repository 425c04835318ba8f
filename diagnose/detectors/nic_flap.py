"""nic-flap: a network card that loses its link again and again, and holds the job up each time.

    link of host-2   ----.    .-------.  .---------.     .-----        three flaps within hours: a finding
    collectives      ---------======-----=====----------=======        of its ranks, across hosts, stand still

One short flap is a mark in the report (marks.py), and no finding. A long one is, and a link that is down now and holds
the job up. A card is only accused where operations of its host's ranks, in groups that leave the host, stood still over
it, or all ranks stand since it lost its link; who waits elsewhere is a victim.
(After the flap correlator of the NIC-flap literature: NVRx, gpud, MegaScale section 6.3; thresholds in settings.py.)
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from diagnose.findings import Finding, Kind, Role, Severity, Suspect, severity_of
from diagnose.model.outages import NS_PER_S, Effect, Outage, may_carry
from diagnose.model.patience import Patience, patience_of
from diagnose.model.view import RunView
from diagnose.ranges import fold_ranks, name_some

NAME = "nic-flap"
MOST_VICTIMS = 64
MOST_WORDS = 8
STILL_S = 3.0
"""Without a record from any rank, or a usual step if that takes longer, while a link is down."""
BEFORE_S, AFTER_S = 5.0, 10.0
"""Around the loss of link within which the job must have stopped: clocks, long transfers, computing."""
CLOSE = 0.5
"""Of the job's patience: a flap that long may be its last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flapping:
    """A card and what its losses of link did."""

    host: str
    device: str
    effects: tuple[Effect, ...]
    """In order of time."""

    @property
    def count(self) -> int:
        return sum(one.outage.count for one in self.effects)

    @property
    def hurt(self) -> list[Effect]:
        return [one for one in self.effects if one.hurt]


def detect_nic_flap(view: RunView) -> list[Finding]:
    """One finding for each card that flaps and holds the job up."""
    by_card: dict[tuple[str, str], list[Effect]] = defaultdict(list)
    for effect in view.effects:
        by_card[effect.outage.host, effect.outage.device].append(effect)
    cards = [
        Flapping(host=host, device=device, effects=_newest(found, view.settings.flaps_within_s))
        for (host, device), found in by_card.items()
    ]
    return [_finding(view, card) for card in cards if _is_told(view, card)] + [
        _standing(view, effect.outage) for effect in view.effects if _holds_up_now(view, effect.outage)
    ]


def _newest(effects: list[Effect], within_s: float) -> tuple[Effect, ...]:
    """Those of so long a time up to the card's last."""
    last_ns = effects[-1].outage.down_ns
    return tuple(one for one in effects if last_ns - one.outage.down_ns <= within_s * NS_PER_S)


def _holds_up_now(view: RunView, outage: Outage) -> bool:
    """Whether the link is down and no rank has done anything since moments after it was lost."""
    usual_s = float(np.median(view.step_ns)) / NS_PER_S if len(view.step_ns) else 0.0
    stopped_ns = view.fleet.moved_ns
    near = outage.down_ns - BEFORE_S * NS_PER_S <= stopped_ns <= outage.down_ns + max(AFTER_S, usual_s) * NS_PER_S
    stands = near and view.fleet.still_s >= max(STILL_S, usual_s)
    return outage.lasts and stands and may_carry(view.words, outage) and bool(_home(view, outage.host))


def _standing(view: RunView, outage: Outage) -> Finding:
    """What ``diagnose/hang`` says a little later, when it is sure that the job stands still."""
    down_s, home = outage.seconds(view.fleet.seen_ns), _home(view, outage.host)
    patience = patience_of(view.words)
    until = f"; the job aborts after {patience.seconds:.3g} s ({patience.words})" if patience.seconds else ""
    return Finding(
        detector=NAME,
        kind=Kind.NIC_FLAP,
        severity=Severity.CRITICAL,
        suspects=tuple(Suspect(rank=rank, host=outage.host, role=Role.INITIATING) for rank in home),
        stage="",
        window=view.window,
        seconds_lost=view.fleet.still_s,
        confidence=0.8,
        summary=f"{outage.device} of {outage.host} (ranks {fold_ranks(home)}) {outage.manner} {down_s:.1f} s ago "
        f"and is down; no rank has made progress for {view.fleet.still_s:.1f} s{until}",
        next_step=f"wait for the link. If it stays down: on {outage.host}, check dmesg, ethtool -S "
        f"{outage.device}, the cable "
        "and the switch port",
        evidence={
            "device": outage.device,
            "seconds_down": [round(down_s, 3)],
            **_patience(patience),
        },
    )


def _is_told(view: RunView, card: Flapping) -> bool:
    long = any(_is_long(view, one.outage) for one in card.hurt)
    return bool(card.hurt) and (card.count >= view.settings.flaps or long)


def _is_long(view: RunView, outage: Outage) -> bool:
    """Whether it is worth a word alone: so long, or down now for longer than a blink."""
    seconds = outage.seconds(view.fleet.seen_ns)
    return seconds >= view.settings.long_flap_s or (outage.lasts and seconds >= STILL_S)


def _finding(view: RunView, card: Flapping) -> Finding:
    hurt = card.hurt
    lost_s = sum(one.held_s for one in hurt)
    patience = patience_of(view.words)
    longest_s = max(one.outage.seconds(view.fleet.seen_ns) for one in card.effects)
    worst_s = max(longest_s, *(one.held_s for one in hurt))
    share = lost_s * NS_PER_S / max(1.0, float(view.step_ns.sum()))
    last = max(card.effects, key=lambda one: one.outage.down_ns).outage
    return Finding(
        detector=NAME,
        kind=Kind.NIC_FLAP,
        severity=_severity(share, worst_s, patience),
        suspects=_suspects(view, card),
        stage=hurt[0].stretched[0].stage.label,
        window=view.window,
        seconds_lost=lost_s,
        confidence=round(len(hurt) / (len(hurt) + 1), 2),
        summary=f"{card.device} of {card.host} (ranks {fold_ranks(_home(view, card.host))}) {_happened(card)}, "
        f"for up to {longest_s:.1f} s{'; it is down now' if last.lasts else ''}; "
        f"the job stalled for {lost_s:.1f} s{_outlook(worst_s, patience)}",
        next_step=f"on {card.host}: check dmesg and ethtool -S {card.device} for link errors, then the cable, the "
        "transceiver "
        "and the switch port (signal strength). Drain the host if it continues",
        evidence={
            "device": card.device,
            "flaps": card.count,
            "flaps_that_hurt": sum(one.outage.count for one in hurt),
            "seconds_down": [round(one.outage.seconds(view.fleet.seen_ns), 3) for one in card.effects],
            "longest_s": round(longest_s, 3),
            **_patience(patience),
            "stretched": stretched_words(hurt),
            "steps": sorted({step for one in hurt for step in one.steps}),
        },
    )


def _patience(patience: Patience) -> dict[str, float]:
    """Nothing where no rank told it: 0 s would read as a job that waits for nobody."""
    return {"patience_s": round(patience.seconds, 1)} if patience.seconds else {}


def _severity(share: float, worst_s: float, patience: Patience) -> Severity:
    """A card that flaps is for today, however short; one that may end the job, now."""
    if patience.seconds and worst_s >= CLOSE * patience.seconds:
        return Severity.CRITICAL
    by_cost = severity_of(share)
    return Severity.WARNING if by_cost is Severity.INFO else by_cost


def _happened(card: Flapping) -> str:
    return "lost its link once" if card.count == 1 else f"lost its link {card.count} times"


def _outlook(worst_s: float, patience: Patience) -> str:
    """Whether the job will live through the next one. It stands still for longer than the link is down: a lost packet
    is sent again after ever longer pauses."""
    survives = patience.survives(worst_s)
    if survives is None:
        return ""
    limit = f"{patience.seconds:.3g} s ({patience.words})"
    if not survives:
        return f"; the job waits at most {limit}: the next link loss can abort it"
    if worst_s >= CLOSE * patience.seconds:
        return f"; the job waits at most {limit}: a slightly longer link loss aborts it"
    return f"; the job waits up to {limit} and survives such flaps"


def _home(view: RunView, host: str) -> list[int]:
    return [rank for rank, name in enumerate(view.hosts) if name == host]


def _suspects(view: RunView, card: Flapping) -> tuple[Suspect, ...]:
    home = _home(view, card.host)
    held = sorted({rank for one in card.hurt for rank in one.held_up} - set(home))
    victims = held if len(held) <= MOST_VICTIMS else []
    return (
        *(Suspect(rank=rank, host=card.host, role=Role.INITIATING) for rank in home),
        *(Suspect(rank=rank, host=view.hosts[rank], role=Role.VICTIM) for rank in victims),
    )


def stretched_words(effects: list[Effect]) -> list[str]:
    """``grads-all-reduce of ranks 0, 4 by 3.1 s in step 7``, the longest first."""
    each = sorted((one for effect in effects for one in effect.stretched), key=lambda one: -one.held_s)
    return [
        f"{one.stage.label} of ranks {name_some(one.ranks)} by {one.held_s:.1f} s in step {one.step}"
        for one in each[:MOST_WORDS]
    ]
