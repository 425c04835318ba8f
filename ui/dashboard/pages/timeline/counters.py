"""Samples of GPUs, network cards and hosts during the steps shown, as curves below the lanes of each rank.

    rank 5   compute        |== F0 ==|== B0 ==|
             SM clock, MHz  --------.__________      of its GPU
             Received, MB/s __.--.____.--._____      of all cards of its host

Samples are seconds apart, and a level is a mean over some seconds. Between two samples it is interpolated, so a short
step has values near one sample. The curves begin with the last sample before the steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from diagnose.gpu_map import rank_gpus
from diagnose.model.fleet import HostSeries
from telemetry.host_metrics import REPEAT_S, Metric
from ui.dashboard.data import Reads
from ui.dashboard.data.fleet import host_samples
from ui.dashboard.pages.fleet.curves import HostCurve, curves_of
from ui.dashboard.pages.fleet.families import GIB, MB, PERCENT, Panel, Reading
from ui.dashboard.pages.timeline.ideal_strip import Prop, packed
from ui.dashboard.pages.timeline.selection import OneClock, StepSelection, aligned
from ui.dashboard.records import Floats, Ints
from ui.dashboard.timeline_view import Counters
from ui.dashboard.view_state import Family
from ui.dashboard.wording import NS_PER_S

TRACKS: Mapping[Family, tuple[Panel, ...]] = {
    Family.GPU: (
        Panel("SM clock", "MHz", {Metric.GPU_SM_CLOCK_MHZ: ""}),
        Panel("Power", "W", {Metric.GPU_POWER_W: ""}),
        Panel("Temperature", "°C", {Metric.GPU_TEMPERATURE_C: ""}),
        Panel("GPU use", "%", {Metric.GPU_UTILIZATION: ""}, scale=PERCENT),
    ),
    Family.NETWORK: (
        Panel("Received", "MB/s", {Metric.NIC_RECEIVE_BYTES: "", "rdma-port_rcv_data": ""}, Reading.RATE, MB),
        Panel("Sent", "MB/s", {Metric.NIC_SEND_BYTES: "", "rdma-port_xmit_data": ""}, Reading.RATE, MB),
        Panel("Link losses", "", {Metric.NIC_CARRIER_DOWNS: "", "rdma-link_downed": ""}, Reading.GROWTH),
    ),
    Family.HOST: (
        Panel("CPU use", "%", {Metric.HOST_CPU_BUSY: ""}, scale=PERCENT),
        Panel("Free memory", "GiB", {Metric.HOST_MEMORY_AVAILABLE_BYTES: ""}, scale=GIB),
    ),
}
SHOWN: Mapping[Counters, tuple[Family, ...]] = {
    Counters.NONE: (),
    Counters.GPU: (Family.GPU,),
    Counters.NETWORK: (Family.NETWORK,),
    Counters.HOST: (Family.HOST,),
    Counters.ALL: (Family.GPU, Family.NETWORK, Family.HOST),
}
MARGIN_NS = round((REPEAT_S + 1) * NS_PER_S)
"""Samples up to this long before and after the steps are loaded. A counter that does not change is stored only once in
this time."""
MAX_POINTS, LEAST_POINTS, HOSTS_AT_FULL = 150, 12, 8
"""Largest and smallest number of points in one curve. With more hosts than HOSTS_AT_FULL, each curve has fewer points
than MAX_POINTS."""
MAX_CURVES = 8
"""Largest number of curves of one host in one track: those of the devices with the largest values."""
FULL_SCALE = 2**16 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One device in one track, on the clock of the picture. It can belong to several ranks of a host."""

    track: int
    """Index into ``CounterCurves.tracks``."""
    ranks: tuple[int, ...]
    device: str
    """``gpu1``, ``eth0``. Empty for the whole host."""
    at_ns: Ints
    value: Floats
    """In the unit of the track."""
    holds: bool
    """Whether a value is constant until the next point."""

    def during(self, first_ns: int, last_ns: int) -> tuple[float, float, float]:
        """Lowest, mean and highest value over a time range. Between two points, values are interpolated, or
        constant."""
        inside = self.at_ns[(self.at_ns > first_ns) & (self.at_ns < last_ns)]
        at_ns = np.concatenate([[first_ns], inside, [last_ns]])
        value = self.at(at_ns)
        middle = value[:-1] if self.holds else (value[:-1] + value[1:]) / 2
        mean = float(np.average(middle, weights=np.maximum(np.diff(at_ns), 1)))
        used = value[:-1] if self.holds else value
        return float(used.min()), mean, float(used.max())

    def at(self, at_ns: Ints) -> Floats:
        """The values at some times. Outside the curve, its first or last value."""
        if self.holds:
            return self.value[np.clip(np.searchsorted(self.at_ns, at_ns, side="right") - 1, 0, None)]
        return np.asarray(np.interp(at_ns - self.at_ns[0], self.at_ns - self.at_ns[0], self.value), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterCurves:
    """Curves of all ranks shown. ``tracks``: the tracks with data, from the top."""

    tracks: tuple[Panel, ...] = ()
    curves: tuple[Curve, ...] = ()


NO_COUNTERS = CounterCurves()


def counter_curves(shown: StepSelection, counters: Counters, reads: Reads) -> CounterCurves:
    """The samples of the chosen families. Empty if none is stored for this time."""
    tracks = tuple(track for family in SHOWN[counters] for track in TRACKS[family])
    if not tracks:
        return NO_COUNTERS
    one_clock, facts = aligned(shown, reads), shown.facts
    raw = reads.spans(facts.summary, shown.steps.first, shown.rows.ranks, shown.steps.last)
    recorded = [int(raw.start_ns.min()), int(raw.end_ns.max())] if len(raw) else []
    times = [*recorded, *(span.since_ns for span in shown.open_spans)]
    hosts = tuple(sorted({facts.hosts[rank] for rank in shown.rows.ranks} - {""}))
    if not times or not hosts:
        return NO_COUNTERS
    metrics = tuple(dict.fromkeys(str(metric) for track in tracks for metric in track.metrics))
    first_ns, last_ns = max(0, min(times) - MARGIN_NS), max(times) + MARGIN_NS
    num_points = max(LEAST_POINTS, MAX_POINTS * HOSTS_AT_FULL // max(HOSTS_AT_FULL, len(hosts)))
    found = host_samples(reads, facts.summary, hosts, metrics, first_ns, last_ns, num_points)
    gpus = _gpus(shown, reads) if Family.GPU in SHOWN[counters] else {}
    curves = [curve for host in hosts for curve in _of_host(host, found, tracks, shown, gpus, one_clock)]
    return _with_data(tracks, curves)


def _gpus(shown: StepSelection, reads: Reads) -> dict[int, str]:
    """The device of each rank on its host."""
    run = shown.facts.summary
    known = reads.compute(run, "gpus", lambda reader: rank_gpus(reader, run.run_id, run.attempt))
    return {gpu.rank: gpu.device for gpu in known if gpu.device}


def _of_host(
    host: str,
    found: Mapping[str, Sequence[HostSeries]],
    tracks: Sequence[Panel],
    shown: StepSelection,
    gpus: Mapping[int, str],
    one_clock: OneClock,
) -> Iterator[Curve]:
    series = [(metric, one) for metric, every in found.items() for one in every if one.host == host]
    ranks = tuple(rank for rank in shown.rows.ranks if shown.facts.hosts[rank] == host)
    for panel in curves_of(tracks, series):
        of_gpu = panel.panel in TRACKS[Family.GPU]
        largest = sorted(panel.curves, key=lambda curve: -float(curve.value.max()))
        for curve in panel.curves if of_gpu else largest[:MAX_CURVES]:
            owners = tuple(rank for rank in ranks if gpus.get(rank) == curve.device) if of_gpu else ranks
            if owners:
                yield _curve(tracks.index(panel.panel), owners, curve, host, one_clock)


def _curve(track: int, ranks: tuple[int, ...], curve: HostCurve, host: str, one_clock: OneClock) -> Curve:
    clock = one_clock.reference
    at_ns = curve.at_ns if clock is None else clock.aligned(curve.at_ns, host)
    device, value = curve.device, curve.value
    return Curve(track=track, ranks=ranks, device=device, at_ns=at_ns, value=value, holds=curve.holds)


def _with_data(tracks: Sequence[Panel], curves: Sequence[Curve]) -> CounterCurves:
    """The curves and their tracks, without the tracks that have no curve."""
    used = sorted({curve.track for curve in curves})
    place = {track: index for index, track in enumerate(used)}
    return CounterCurves(
        tracks=tuple(tracks[track] for track in used),
        curves=tuple(replace(curve, track=place[curve.track]) for curve in curves),
    )


def packed_counters(counters: CounterCurves, row_of: Mapping[int, int], origin_ns: int, tick_ns: int) -> Prop:
    """The curves for the canvas in the browser.

    {"tracks": [{"name": "SM clock", "unit": "MHz", "high": 1980.0}, ...],      a track reaches from 0 to ``high``
     "curves": [{"track": 0, "rows": [0, 1], "device": "gpu1", "holds": false, "first": 0, "last": 40}, ...],
     "at": ..., "value": ...}      points [first, last) of a curve: ticks, and shares of ``high`` in 1/65535
    """
    high = [
        max((float(curve.value.max()) for curve in counters.curves if curve.track == track), default=0.0)
        for track in range(len(counters.tracks))
    ]
    ends = np.cumsum([0, *(len(curve.at_ns) for curve in counters.curves)]).tolist()
    none: list[Ints] = [np.zeros(0, dtype=np.int64)]
    at = np.concatenate([*none, *((curve.at_ns - origin_ns) // tick_ns for curve in counters.curves)])
    shares = [
        np.rint(np.clip(curve.value / (high[curve.track] or 1.0), 0, 1) * FULL_SCALE) for curve in counters.curves
    ]
    return {
        "tracks": [
            {"name": track.title, "unit": track.unit, "high": value}
            for track, value in zip(counters.tracks, high, strict=True)
        ],
        "curves": [
            {
                "track": curve.track,
                "rows": [row_of[rank] for rank in curve.ranks],
                "device": curve.device,
                "holds": curve.holds,
                "first": first,
                "last": last,
            }
            for curve, first, last in zip(counters.curves, ends[:-1], ends[1:], strict=True)
        ],
        "at": packed(at),
        "value": packed(np.concatenate([*none, *(share.astype(np.int64) for share in shares)])),
    }
