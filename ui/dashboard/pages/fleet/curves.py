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
from diagnose.model.gpus import LATE, knots, usual_gap_ns
from diagnose.model.outages import Outage, find_outages
from telemetry.host_metrics import Happening
from ui.dashboard.pages.fleet.families import HELD_DOWN, Panel, Reading
from ui.dashboard.records import Floats, Ints, MarkRow
from ui.dashboard.wording import NS_PER_S

MAX_CURVES = 16
"""Largest number of curves in one panel: those with the largest values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCurve:
    """A quantity over the time of the host. Arrays of equal length."""

    device: str
    """``gpu0``, ``eth0``, ``rank 5``. Empty for the whole host."""
    kind: str
    """The name of the curve if a panel has several curves of each device."""
    at_ns: Ints
    value: Floats
    holds: bool
    """Whether a value is constant until the next point, like a rate."""

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.device, self.kind))) or "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The curves of a panel, and the number of curves that are left out."""

    panel: Panel
    curves: tuple[HostCurve, ...]
    num_left_out: int


def curves_of(panels: Sequence[Panel], series: Sequence[tuple[str, HostSeries]]) -> list[Curves]:
    """The panels with data, in their order. Counters are drawn until the newest sample of all ``series``."""
    found = []
    newest_ns = max((int(samples.at_ns[-1]) for _, samples in series if len(samples.at_ns)), default=0)
    for panel in panels:
        curves = [
            _curve(panel, metric, samples, newest_ns)
            for metric, samples in series
            if metric in panel.metrics and len(samples.at_ns)
        ]
        known = [curve for curve in curves if len(curve.at_ns) and (curve.value.any() or not panel.hides_zero)]
        if known:
            highest = sorted(known, key=lambda curve: -float(curve.value.max()))[:MAX_CURVES]
            shown = tuple(sorted(highest, key=lambda curve: natural(curve.name)))
            found.append(Curves(panel=panel, curves=shown, num_left_out=len(known) - len(shown)))
    return found


def rate(series: HostSeries, until_ns: int = 0) -> tuple[Ints, Floats]:
    """The growth of a counter per second, from each time on, to ``until_ns`` or to the last sample if that is later.

    The last value has no duration. Empty for a single sample.
    """
    if len(series.at_ns) < 2:
        return np.zeros(0, np.int64), np.zeros(0)
    since_ns, counted = knots(series, _known_until(series, until_ns))
    moments = np.concatenate([np.diff(since_ns) > 0, [True]])
    since_ns, counted = since_ns[moments], counted[moments]
    grown = np.diff(counted) / np.diff(since_ns) * NS_PER_S
    return series.at_ns[0] + since_ns.astype(np.int64), np.concatenate([grown, grown[-1:]])


def _known_until(series: HostSeries, until_ns: int) -> int:
    """``until_ns``, or the last sample if the counter changed until then and its next sample is not late."""
    last_ns, is_still = int(series.at_ns[-1]), bool((series.value[-2:] == series.value[-1]).all())
    return until_ns if is_still or until_ns - last_ns > LATE * usual_gap_ns(series) else last_ns


def _curve(panel: Panel, metric: str, series: HostSeries, newest_ns: int) -> HostCurve:
    if panel.reading is Reading.RATE:
        at_ns, value = rate(series, newest_ns)
    elif panel.reading is Reading.GROWTH:
        since_ns, value = knots(series, newest_ns)
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
    """A sort key with ``gpu2`` before ``gpu10``."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if at % 2 else (-1, part) for at, part in enumerate(parts)]


THROTTLED = 0.3
"""Share of the time. A GPU that is throttled less than this is healthy: it can reach its power cap at times."""
DRAWN_ONCE = (Happening.BUSY_PROCESS, Happening.MEMORY_SHORT)
"""Events that agents report repeatedly. Only the first of each device and kind is drawn."""
LETTER_PX = 6.2
"""Approximate width of a letter."""
MAX_LEVELS = 4
"""Largest number of lines of labels above a chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartEvent:
    """A line or an interval with a label. Times are those of the host's clock."""

    at_ns: int
    until_ns: int
    """End of an interval. ``at_ns`` for a line."""
    label: str
    is_trouble: bool = True


def chart_events(
    events: Sequence[HostEvent], marks: Sequence[MarkRow], series: Sequence[tuple[str, HostSeries]], last_ns: int
) -> list[ChartEvent]:
    """All events, ordered by time. ``last_ns``: the end of the interval of a link that is still down."""
    found = [
        *(_outage(outage, last_ns) for outage in find_outages(events)),
        *_others(events),
        *_held_down(series),
        *(_mark(mark) for mark in marks),
    ]
    return sorted(found, key=lambda event: event.at_ns)


def levels(found: Sequence[ChartEvent], first_ns: int, last_ns: int, width_px: int) -> list[int]:
    """The line of each label above the chart, from 0. -1 if there is no room."""
    ends = [-np.inf] * MAX_LEVELS
    placed = []
    for event in found:
        left = (event.at_ns - first_ns) / max(1, last_ns - first_ns) * width_px
        level = next((level for level, end in enumerate(ends) if end < left), -1)
        if level >= 0:
            ends[level] = left + LETTER_PX * (len(event.label) + 2)
        placed.append(level)
    return placed


def _outage(outage: Outage, last_ns: int) -> ChartEvent:
    until_ns = outage.up_ns or max(outage.down_ns, last_ns)
    times = f" {outage.count}x" if outage.count > 1 else ""
    lasted = "still down" if outage.lasts else f"for {outage.seconds():.1f} s"
    return ChartEvent(at_ns=outage.down_ns, until_ns=until_ns, label=f"{outage.device} {outage.manner}{times} {lasted}")


def _others(events: Sequence[HostEvent]) -> Iterator[ChartEvent]:
    drawn: set[tuple[str, str]] = set()
    for event in events:
        is_again = event.name in DRAWN_ONCE and (event.name, event.device) in drawn
        drawn.add((event.name, event.device))
        label = "" if is_again else _label(event)
        if label:
            yield ChartEvent(
                at_ns=event.at_ns,
                until_ns=event.at_ns,
                label=label,
                is_trouble=event.name != Happening.RANK_CONTINUED,
            )


def _label(event: HostEvent) -> str:
    """The label of an event; empty for an event that is not drawn as a line. Link losses are drawn as outages."""
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


def _held_down(series: Sequence[tuple[str, HostSeries]]) -> Iterator[ChartEvent]:
    """The first time at which each GPU was throttled for each reason."""
    for device, reason, begun_ns in _throttling(series):
        yield ChartEvent(at_ns=begun_ns, until_ns=begun_ns, label=f"{device} throttled: {reason}")


def num_throttled(series: Sequence[tuple[str, HostSeries]]) -> int:
    """Number of GPUs that were throttled at some time."""
    return len({device for device, _, _ in _throttling(series)})


def _throttling(series: Sequence[tuple[str, HostSeries]]) -> Iterator[tuple[str, str, int]]:
    """Each throttled GPU, the reason, and when it began."""
    for metric, samples in series:
        if metric in HELD_DOWN:
            at_ns, share = rate(samples)
            high = np.flatnonzero(share >= THROTTLED * NS_PER_S)
            if len(high):
                yield samples.device, HELD_DOWN[metric], int(at_ns[high[0]])


def _mark(mark: MarkRow) -> ChartEvent:
    label = f"{mark.name[:24]} (rank {mark.rank})"
    return ChartEvent(at_ns=mark.at_ns, until_ns=mark.at_ns, label=label, is_trouble=False)
