"""Host data that agents would have sent: link losses, and counters of GPUs with reduced clocks.

    gradients of rank 9     |--|               |---------------------|     the link is lost when all members have begun
    eth0 of gpu-001     ------------------------.               .-----     and stays down for a random time
                                      link-down '---------------' link-up

    factor on work   1.0   1.4   1.4   1.0      a step takes longer because clocks are at LOW for a share of its time;
    reduced            0%   71%   71%    0%     else they are at FULL
    counter          .....//////////......      grows by that share of the step
    windows          |----|----|----|----|      as agents send it: counters at the end of a window, if they changed;
                                                levels as their mean

Clocks are lower than LOW if that is not enough. Every GPU reaches its power cap from time to time. Times are those of
each host's own clock. A run without such a fault has no host data.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import NAMESPACE_OID, uuid5

import numpy as np

from diagnose.model.fleet import NO_FLEET, Fleet, HostEvent, HostSeries
from diagnose.model.operations import Int64s
from diagnose.simulate.faults import THROTTLING
from diagnose.simulate.noise import Draws
from diagnose.simulate.plan import SimulatedRun
from diagnose.simulate.recording import Timeline
from diagnose.simulate.scene import Conditions, Floats, Silence
from telemetry.host_metrics import REPEAT_S, WINDOW_S, Happening, Metric

NS_PER_S = 1_000_000_000
GPU_DRAW = 5
FULL_MHZ = 1980.0
LOW = 0.6
"""Reduced clocks, as a share of full clocks."""
COOL_C, HOT_C = 62.0, 88.0
MOST_AT_CAP = 0.05
"""Largest share of time at the power cap of a healthy GPU."""
BEFORE_WINDOWS, AFTER_WINDOWS = 2, 2
"""Samples begin this many windows before the steps, and end this many windows after them."""
SERIES = 5
"""Number of metrics of each GPU."""
MOST_ROWS = 20_000
"""Limit of rows. Above it, only hosts with a fault have data, and as many others as there are pipeline stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gpu:
    rank: int
    host: str
    device: str
    at_cap: float
    """Share of time at its power cap without a fault."""


def fleet_of(plan: SimulatedRun, conditions: Conditions, draws: Draws, timeline: Timeline) -> Fleet:
    """Events and samples of all hosts."""
    if not conditions.silences and not conditions.held_down:
        return NO_FLEET
    series, gpu_events = _gpu_samples(plan, conditions, draws, timeline)
    links = [event for silence in conditions.silences for event in _lost_link(silence, timeline)]
    events = sorted((*links, *gpu_events), key=lambda event: (event.at_ns, event.host, event.device, event.name))
    return Fleet(series=series, events=tuple(events))


def _lost_link(silence: Silence, timeline: Timeline) -> Iterator[HostEvent]:
    """The events at both ends of an outage. It begins when the first group of the card is complete."""
    down_ns = timeline.met_ns[silence.row, list(silence.ranks)].min()
    up_ns = down_ns + round(silence.seconds * NS_PER_S)
    stamps = timeline.clocks.read(silence.host, np.array([down_ns, up_ns])).tolist()
    names = ((Happening.LINK_DOWN, "no carrier"), (Happening.LINK_UP, "carrier"))
    for at_ns, (name, text) in zip(stamps, names, strict=True):
        yield HostEvent(host=silence.host, device=silence.device, at_ns=at_ns, name=name.value, text=text)


def _gpu_samples(
    plan: SimulatedRun, conditions: Conditions, draws: Draws, timeline: Timeline
) -> tuple[dict[str, tuple[HostSeries, ...]], list[HostEvent]]:
    """Series by metric, and events, of the GPUs. Empty if no fault reduces clocks."""
    if not conditions.held_down:
        return {}, []
    random = draws.of(GPU_DRAW)
    at_cap = random.uniform(0.0, MOST_AT_CAP, plan.topology.world_size)
    phase_ns = np.rint(random.uniform(-WINDOW_S, 0.0, plan.topology.world_size) * NS_PER_S).astype(np.int64)
    window_ns = round(WINDOW_S * NS_PER_S)
    windows = np.arange(-BEFORE_WINDOWS * window_ns, timeline.end_ns + (AFTER_WINDOWS + 1) * window_ns, window_ns)
    found: dict[str, list[HostSeries]] = defaultdict(list)
    events: list[HostEvent] = []
    for host in _hosts_with_samples(plan, conditions, len(windows)):
        ranks = plan.scene.ranks_on(host)
        samples_ns = windows + phase_ns[ranks[0]]
        first_ns = int(timeline.clocks.read(host, samples_ns[:1])[0])
        for place, rank in enumerate(ranks):
            gpu = _Gpu(rank=rank, host=host, device=f"gpu{place}", at_cap=float(at_cap[rank]))
            for metric, series in _series_of(gpu, conditions, samples_ns, timeline):
                found[metric].append(series)
            uuid = f"GPU-{uuid5(NAMESPACE_OID, f'{host}/{gpu.device}')}"
            name = Happening.GPU_SEEN.value
            events.append(HostEvent(host=host, device=gpu.device, at_ns=first_ns, name=name, text=uuid))
    return {
        metric: tuple(sorted(all_series, key=lambda series: (series.host, series.device)))
        for metric, all_series in found.items()
    }, events


def _hosts_with_samples(plan: SimulatedRun, conditions: Conditions, num_samples: int) -> list[str]:
    """Hosts with a fault first, then hosts whose ranks do the same work, then others, up to the limit."""
    held = np.logical_or.reduce([(factor > 1).any(axis=0) for factor in conditions.held_down.values()])
    stage = plan.topology.index["pp"]
    alike = np.isin(stage, stage[held])
    order = np.argsort(np.where(held, 0, np.where(alike, 1, 2)), kind="stable")
    host_of = plan.hosts
    hosts = list(dict.fromkeys(host_of[rank] for rank in order))
    num_faulty = len({host_of[rank] for rank in np.flatnonzero(held)})
    room = MOST_ROWS // (SERIES * num_samples * plan.gpus_per_host)
    return hosts[: max(room, num_faulty + plan.topology.pp)]


def _series_of(
    gpu: _Gpu, conditions: Conditions, samples_ns: Int64s, timeline: Timeline
) -> Iterator[tuple[str, HostSeries]]:
    """Series of a GPU: counters of throttling, clock and temperature."""
    none = np.ones(len(timeline.begin_ns))
    factors = {
        counter: conditions.held_down[counter][:, gpu.rank] if counter in conditions.held_down else none
        for counter in THROTTLING.values()
    }
    usual = {counter: gpu.at_cap if counter == THROTTLING["power"] else 0.0 for counter in factors}
    held = {counter: np.maximum(usual[counter], held_down_share(factor)) for counter, factor in factors.items()}
    for counter, share in held.items():
        value = _accumulated(share, usual[counter], samples_ns, timeline)
        sent = [1]  # a counter is sent if it changed since it was last sent, and at least once a minute
        for sample in range(2, len(samples_ns)):
            is_due = samples_ns[sample] - samples_ns[sent[-1]] >= REPEAT_S * NS_PER_S
            if value[sample] > value[sent[-1]] or is_due:
                sent.append(sample)
        yield counter, _series(gpu, samples_ns[sent], np.rint(value[sent]), timeline)
    slowed = np.prod(list(factors.values()), axis=0)
    levels = {
        Metric.GPU_SM_CLOCK_MHZ: (FULL_MHZ / slowed, FULL_MHZ),
        Metric.GPU_TEMPERATURE_C: (COOL_C + (HOT_C - COOL_C) * held[THROTTLING["heat"]], COOL_C),
    }
    for metric, (level, before) in levels.items():
        mean = np.diff(_accumulated(level, before, samples_ns, timeline)) / np.diff(samples_ns)
        yield metric, _series(gpu, samples_ns[1:], mean, timeline)


def held_down_share(factor: Floats) -> Floats:
    """Share of time with reduced clocks, of a GPU whose work takes ``factor`` times as long."""
    return np.asarray(np.minimum(1.0, (1.0 - 1.0 / factor) / (1.0 - LOW)))


def _accumulated(rate: Floats, before: float, samples_ns: Int64s, timeline: Timeline) -> Floats:
    """Value at each sample of a counter that grows by ``rate`` of the time in each step, else by ``before``."""
    edges = np.array([samples_ns[0], *timeline.begin_ns, timeline.end_ns, samples_ns[-1]])
    grown = np.cumsum([0.0, *(np.diff(edges) * np.array([before, *rate, before]))])
    return np.asarray(np.interp(samples_ns, edges, grown))


def _series(gpu: _Gpu, at_ns: Int64s, value: Floats, timeline: Timeline) -> HostSeries:
    read_ns = timeline.clocks.read(gpu.host, at_ns)
    return HostSeries(host=gpu.host, device=gpu.device, at_ns=read_ns, value=value, mean=value)
