"""Convert samples of a host to curves: levels unchanged, counters as rates.

counter   o.....o/o''o''o     sampled rarely while constant: constant in between, not growing slowly
rate      ______/'|______     constant between two samples, not a slope

Events are lines across a chart: link losses, Xids, signals, GPU throttling, marks of ranks.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from diagnose.model.fleet import HostEvent, HostSeries
from diagnose.model.gpus import knots
from diagnose.model.outages import Outage, find_outages
from telemetry.host_metrics import Happening
from ui.dashboard.pages.fleet.families import HELD_DOWN, Panel, Reading
from ui.dashboard.records import Floats, Ints, MarkRow
from ui.dashboard.wording import NS_PER_S

MAX_CURVES = 16
"""In one panel: those that reach highest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCurve:
    """A quantity over the host's own time; arrays of one length."""

    device: str
    """``gpu0``, ``eth0``, ``rank 5``; empty: of the whole host."""
    kind: str
    """What is told of it, where a panel tells several things of each."""
    at_ns: Ints
    value: Floats
    holds: bool
    """Whether a value holds up to the next point, as a rate does."""

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.device, self.kind))) or "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """A panel's curves, and how many more there are."""

    panel: Panel
    curves: tuple[HostCurve, ...]
    num_left_out: int


def curves_of(panels: Sequence[Panel], series: Sequence[tuple[str, HostSeries]]) -> list[Curves]:
    """The panels for which something was told, in their order."""
    found = []
    for panel in panels:
        curves = [_curve(panel, metric, one) for metric, one in series if metric in panel.metrics and len(one.at_ns)]
        known = [one for one in curves if len(one.at_ns) and (one.value.any() or not panel.hides_zero)]
        if known:
            highest = sorted(known, key=lambda one: -float(one.value.max()))[:MAX_CURVES]
            shown = tuple(sorted(highest, key=lambda one: natural(one.name)))
            found.append(Curves(panel=panel, curves=shown, num_left_out=len(known) - len(shown)))
    return found


def rate(series: HostSeries) -> tuple[Ints, Floats]:
    """By how much a counter grows a second, from each moment on; the last value holds no longer. None of one look."""
    if len(series.at_ns) < 2:
        return np.zeros(0, np.int64), np.zeros(0)
    since_ns, counted = knots(series, int(series.at_ns[-1]))
    moments = np.concatenate([np.diff(since_ns) > 0, [True]])
    since_ns, counted = since_ns[moments], counted[moments]
    grown = np.diff(counted) / np.diff(since_ns) * NS_PER_S
    return series.at_ns[0] + since_ns.astype(np.int64), np.concatenate([grown, grown[-1:]])


def _curve(panel: Panel, metric: str, series: HostSeries) -> HostCurve:
    if panel.reading is Reading.RATE:
        at_ns, value = rate(series)
    elif panel.reading is Reading.GROWTH:
        since_ns, value = knots(series, int(series.at_ns[-1]))
        at_ns = series.at_ns[0] + since_ns.astype(np.int64)
    else:
        at_ns, value = series.at_ns, series.mean
    return HostCurve(
        device=series.device,
        kind=panel.metrics[metric],
        at_ns=at_ns,
        value=value * panel.scale,
        holds=panel.reading is not Reading.LEVEL,
    )


def natural(name: str) -> list[tuple[int, str]]:
    """``gpu2`` before ``gpu10``."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if at % 2 else (-1, part) for at, part in enumerate(parts)]


HELD = 0.3
"""Share of the time from which on a GPU that is held down is told: one at its power cap now and then is well."""
TOLD_ONCE = (Happening.BUSY_PROCESS, Happening.MEMORY_SHORT)
"""Events that agents tell again and again: the first of each device and kind is drawn."""
WORDS_PX = 6.2
"""Of one letter, about."""
MAX_LEVELS = 4
"""Lines of words above a chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """One line, or a stretch, with its words. Times are the host's own clock."""

    at_ns: int
    until_ns: int
    """End of a stretch; ``at_ns`` where it has none."""
    words: str
    is_trouble: bool = True


def happenings(
    events: Sequence[HostEvent], marks: Sequence[MarkRow], series: Sequence[tuple[str, HostSeries]], last_ns: int
) -> list[Happened]:
    """All of them, in order of time. ``last_ns``: until when a link that is still down is drawn."""
    found = [
        *(_outage(one, last_ns) for one in find_outages(events)),
        *_others(events),
        *_held_down(series),
        *(_mark(mark) for mark in marks),
    ]
    return sorted(found, key=lambda one: one.at_ns)


def levels(found: Sequence[Happened], first_ns: int, last_ns: int, width_px: int) -> list[int]:
    """On which line above the chart the words of each stand, from 0; -1 where there is no room left for them."""
    ends = [-np.inf] * MAX_LEVELS
    placed = []
    for one in found:
        left = (one.at_ns - first_ns) / max(1, last_ns - first_ns) * width_px
        level = next((level for level, end in enumerate(ends) if end < left), -1)
        if level >= 0:
            ends[level] = left + WORDS_PX * (len(one.words) + 2)
        placed.append(level)
    return placed


def _outage(one: Outage, last_ns: int) -> Happened:
    until_ns = one.up_ns or max(one.down_ns, last_ns)
    times = f" {one.count}x" if one.count > 1 else ""
    lasted = "still down" if one.lasts else f"for {one.seconds():.1f} s"
    return Happened(at_ns=one.down_ns, until_ns=until_ns, words=f"{one.device} {one.manner}{times} {lasted}")


def _others(events: Sequence[HostEvent]) -> Iterator[Happened]:
    told: set[tuple[str, str]] = set()
    for event in events:
        is_again = event.name in TOLD_ONCE and (event.name, event.device) in told
        told.add((event.name, event.device))
        words = "" if is_again else _words(event)
        if words:
            yield Happened(
                at_ns=event.at_ns,
                until_ns=event.at_ns,
                words=words,
                is_trouble=event.name != Happening.RANK_CONTINUED,
            )


def _words(event: HostEvent) -> str:
    """Empty for what is no line of its own: links are told by their outages."""
    first = event.text.split(maxsplit=1)[0][:24] if event.text.strip() else ""
    match event.name:
        case Happening.GPU_XID:
            return f"{event.device} Xid {first}"
        case Happening.GPU_ERROR:
            return f"{event.device} {event.text[:32]}"
        case Happening.DEVICE_GONE if event.device.startswith("gpu"):
            return f"{event.device} gone"
        case Happening.RANK_STOPPED:
            return f"{event.device} stopped"
        case Happening.RANK_CONTINUED:
            return f"{event.device} continues"
        case Happening.BUSY_PROCESS:
            return f"{' '.join(event.text.split()[1:2])[:24]} takes {event.device or 'cores'}"
        case Happening.MEMORY_SHORT:
            return "memory pressure"
        case Happening.OOM_KILL:
            return f"{first} killed, out of memory"
    return ""


def _held_down(series: Sequence[tuple[str, HostSeries]]) -> Iterator[Happened]:
    """Where a GPU's clocks begin to be held down, for each reason once."""
    for metric, one in series:
        if metric in HELD_DOWN:
            at_ns, share = rate(one)
            high = np.flatnonzero(share >= HELD * NS_PER_S)
            if len(high):
                begun_ns = int(at_ns[high[0]])
                words = f"{one.device} throttled: {HELD_DOWN[metric]}"
                yield Happened(at_ns=begun_ns, until_ns=begun_ns, words=words)


def _mark(mark: MarkRow) -> Happened:
    words = f"{mark.name[:24]} (rank {mark.rank})"
    return Happened(at_ns=mark.at_ns, until_ns=mark.at_ns, words=words, is_trouble=False)
