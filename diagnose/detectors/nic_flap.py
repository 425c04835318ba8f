"""nic-flap: a network card that loses its link repeatedly and delays the job each time.

    link of host-2   ----.    .-------.  .---------.     .-----        three flaps within hours: a finding
    collectives      ---------======-----=====----------=======        its ranks' groups across hosts stall

One short flap is a mark in the report (``marks.py``). A finding is one long flap, or a link that is down now and delays
the job. A card is a suspect only in two cases. Operations of its host's ranks, in groups that leave the host, stalled
during the outage. Or all ranks have stalled since it lost its link. Ranks that wait on other hosts are victims.
(NVRx, gpud, MegaScale section 6.3; thresholds in ``settings.py``.)
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from diagnose.detectors.evidence import initiating, with_members
from diagnose.findings import Finding, Kind, Severity, severity_of
from diagnose.model.fleet import NS_PER_S
from diagnose.model.outages import Effect, Outage, Patience, describe_stretched, may_carry, patience_of
from diagnose.model.view import RunView
from diagnose.ranges import fold_ranks

NAME = "nic-flap"
STILL_S = 3.0
"""The job stalls if no rank sent a record for this time while a link is down. A usual step, if that is longer."""
BEFORE_S, AFTER_S = 5.0, 10.0
"""The job must have stopped within this time before and after the link loss. Clocks differ, and transfers and compute
that have begun continue for a while."""
CLOSE = 0.5
"""Share of the job's patience. A flap of this length is critical."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flapping:
    """A card and what its link losses did."""

    host: str
    device: str
    effects: tuple[Effect, ...]
    """In order of time."""

    @property
    def count(self) -> int:
        return sum(effect.outage.count for effect in self.effects)

    @property
    def hurt(self) -> list[Effect]:
        return [effect for effect in self.effects if effect.hurt]


def detect_nic_flap(view: RunView) -> list[Finding]:
    """One finding for each card that flaps and delays the job."""
    by_card: dict[tuple[str, str], list[Effect]] = defaultdict(list)
    for effect in view.effects:
        by_card[effect.outage.host, effect.outage.device].append(effect)
    cards = [
        Flapping(host=host, device=device, effects=_newest(found, view.settings.flaps_within_s))
        for (host, device), found in by_card.items()
    ]
    return [_finding(view, card) for card in cards if _is_reported(view, card)] + [
        _standing(view, effect.outage) for effect in view.effects if _stalls_now(view, effect.outage)
    ]


def _newest(effects: list[Effect], within_s: float) -> tuple[Effect, ...]:
    """Effects within this time before the last one of the card."""
    last_ns = effects[-1].outage.down_ns
    return tuple(effect for effect in effects if last_ns - effect.outage.down_ns <= within_s * NS_PER_S)


def _stalls_now(view: RunView, outage: Outage) -> bool:
    """Whether the link is down and all ranks stopped at about the time of its loss."""
    usual_s = float(np.median(view.step_ns)) / NS_PER_S if len(view.step_ns) else 0.0
    stopped_ns = view.fleet.moved_ns
    near = outage.down_ns - BEFORE_S * NS_PER_S <= stopped_ns <= outage.down_ns + max(AFTER_S, usual_s) * NS_PER_S
    stands = near and view.fleet.still_s >= max(STILL_S, usual_s)
    return outage.lasts and stands and may_carry(view.meta, outage.device) and outage.host in view.hosts


def _standing(view: RunView, outage: Outage) -> Finding:
    """The finding for a link that is down now and stalls the job. ``diagnose/hang`` reports the stall later, when it is
    certain."""
    down_s, home = outage.seconds(view.fleet.seen_ns), _home(view, outage.host)
    patience = patience_of(view.meta)
    until = f"; the job aborts after {patience.seconds:.3g} s ({patience.setting})" if patience.seconds else ""
    return Finding(
        detector=NAME,
        kind=Kind.NIC_FLAP,
        severity=Severity.CRITICAL,
        suspects=initiating(view, home),
        window=view.window,
        seconds_lost=view.fleet.still_s,
        confidence=0.8,
        summary=f"{outage.device} of {outage.host} (ranks {fold_ranks(home)}) {outage.manner} {down_s:.1f} s ago "
        f"and is down; no rank has made progress for {view.fleet.still_s:.1f} s{until}",
        next_step=f"wait for the link. If it stays down: on {outage.host}, check dmesg, ethtool -S {outage.device}, "
        "the cable and the switch port",
        evidence={"device": outage.device, "seconds_down": [round(down_s, 3)], **_patience(patience)},
    )


def _is_reported(view: RunView, card: Flapping) -> bool:
    """Whether a card has enough flaps, one long flap, or is down now for longer than a short flap."""

    def is_long(outage: Outage) -> bool:
        seconds = outage.seconds(view.fleet.seen_ns)
        return seconds >= view.settings.long_flap_s or (outage.lasts and seconds >= STILL_S)

    return bool(card.hurt) and (
        card.count >= view.settings.flaps or any(is_long(effect.outage) for effect in card.hurt)
    )


def _finding(view: RunView, card: Flapping) -> Finding:
    hurt = card.hurt
    lost_s = sum(effect.held_s for effect in hurt)
    patience = patience_of(view.meta)
    down_s = [effect.outage.seconds(view.fleet.seen_ns) for effect in card.effects]
    worst_s = max(*down_s, *(effect.held_s for effect in hurt))
    is_close = bool(patience.seconds) and worst_s >= CLOSE * patience.seconds
    share = lost_s * NS_PER_S / max(1.0, float(view.step_ns.sum()))
    last = max(card.effects, key=lambda effect: effect.outage.down_ns).outage
    home = _home(view, card.host)
    return Finding(
        detector=NAME,
        kind=Kind.NIC_FLAP,
        severity=Severity.CRITICAL if is_close else severity_of(share, least=Severity.WARNING),
        suspects=with_members(view, home, {rank for effect in hurt for rank in effect.held_up}),
        stage=hurt[0].stretched[0].stage.label,
        window=view.window,
        seconds_lost=lost_s,
        confidence=round(len(hurt) / (len(hurt) + 1), 2),
        summary=f"{card.device} of {card.host} (ranks {fold_ranks(home)}) lost its link "
        f"{'once' if card.count == 1 else f'{card.count} times'}, "
        f"for up to {max(down_s):.1f} s{'; it is down now' if last.lasts else ''}; "
        f"the job stalled for {lost_s:.1f} s{_outlook(worst_s, patience, is_close=is_close)}",
        next_step=f"on {card.host}: check dmesg and ethtool -S {card.device} for link errors. Then check the cable, "
        "the transceiver and its signal strength, and the switch port. Drain the host if link losses continue",
        evidence={
            "device": card.device,
            "flaps": card.count,
            "flaps_that_hurt": sum(effect.outage.count for effect in hurt),
            "seconds_down": [round(seconds, 3) for seconds in down_s],
            "longest_s": round(max(down_s), 3),
            **_patience(patience),
            "stretched": describe_stretched(hurt),
            "steps": sorted({step for effect in hurt for step in effect.steps}),
        },
    )


def _patience(patience: Patience) -> dict[str, float]:
    """Evidence: how long the job waits for a link. Empty if no rank reported it: 0 s would mean that it never waits."""
    return {"patience_s": round(patience.seconds, 1)} if patience.seconds else {}


def _outlook(worst_s: float, patience: Patience, *, is_close: bool) -> str:
    """Whether the job survives the next flap. The job stalls for longer than the link is down, because a lost packet is
    sent again after longer and longer pauses."""
    survives = patience.survives(worst_s)
    if survives is None:
        return ""
    limit = f"{patience.seconds:.3g} s ({patience.setting})"
    if not survives:
        return f"; the next link loss can abort the job, which waits at most {limit} for a link"
    if is_close:
        return f"; a slightly longer link loss aborts the job, which waits at most {limit} for a link"
    return f"; the job waits up to {limit} for a link and survives such flaps"


def _home(view: RunView, host: str) -> list[int]:
    return [rank for rank, name in enumerate(view.hosts) if name == host]
