"""What agents on the hosts would have told of the run: links that were lost, GPUs that were held down.

    gradients of rank 9     |--|               |---------------------|       the link goes as all have come to meet
    eth0 of gpu-001     ------------------------.               .-----       and stays away as long as was drawn
                                      link-down '---------------' link-up

Times are those of each host's own clock. A run without such a fault is told nothing of.

What agents would have told of GPUs in a run in which some are held down: of those, and of some that are well.

    factor on work   1.0   1.4   1.4   1.0      a step's work takes so much longer because clocks stand at LOW for a
    held down          0%   71%   71%    0%     share of its time; else they stand at FULL
    counter          .....//////////......      grows by that share of the step
    windows          |----|----|----|----|      told as agents ship it: counters where they stand at a window's end,
                                                if they moved; levels as their mean

Held down further than LOW where even all of the time is too little. Every GPU is at its power cap now and then.
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
from telemetry.host_metrics import Happening, Metric
from telemetry.thinning import REPEAT_S, WINDOW_S

GPU_DRAW = 5
FULL_MHZ = 1980.0
LOW = 0.6
"""Of full clocks, where a GPU is held down."""
COOL_C, HOT_C = 62.0, 88.0
MOST_AT_CAP = 0.05
"""Of the time, of a GPU that is well."""
BEFORE_WINDOWS, AFTER_WINDOWS = 2, 2
"""Looks begin and end that far from the steps."""
SERIES = 5
"""Told of each GPU."""
MOST_ROWS = 20_000
"""Of all GPUs together: of more hosts nothing is told, but for those with a fault and as many beside them as there are
pipeline stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """What was told of GPUs."""

    series: dict[str, tuple[HostSeries, ...]]
    events: tuple[HostEvent, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gpu:
    rank: int
    host: str
    device: str
    at_cap: float
    """Share of the time for which it is at its power cap although nothing is wrong."""


def look_at_gpus(plan: SimulatedRun, conditions: Conditions, draws: Draws, timeline: Timeline) -> Looks:
    """Nothing where none is held down by a fault."""
    if not conditions.held_down:
        return Looks(series={}, events=())
    random, scene = draws.of(GPU_DRAW), plan.scene
    at_cap = random.uniform(0.0, MOST_AT_CAP, plan.topology.world_size)
    phase_ns = np.rint(random.uniform(-WINDOW_S, 0.0, plan.topology.world_size) * NS_PER_S).astype(np.int64)
    windows = _windows(timeline)
    found: dict[str, list[HostSeries]] = defaultdict(list)
    events: list[HostEvent] = []
    for host in _hosts_that_tell(plan, conditions, len(windows)):
        ranks = scene.ranks_on(host)
        looks_ns = windows + phase_ns[ranks[0]]
        for place, rank in enumerate(ranks):
            gpu = _Gpu(rank=rank, host=host, device=f"gpu{place}", at_cap=float(at_cap[rank]))
            for metric, one in _series_of(gpu, conditions, looks_ns, timeline):
                found[metric].append(one)
            events.append(_seen(gpu, int(timeline.clocks.read(host, looks_ns[:1])[0])))
    series = {metric: tuple(sorted(many, key=lambda one: (one.host, one.device))) for metric, many in found.items()}
    return Looks(series=series, events=tuple(events))


def _windows(timeline: Timeline) -> Int64s:
    """Where windows end, but for the host's phase."""
    window_ns = round(WINDOW_S * NS_PER_S)
    return np.arange(-BEFORE_WINDOWS * window_ns, timeline.end_ns + (AFTER_WINDOWS + 1) * window_ns, window_ns)


def _hosts_that_tell(plan: SimulatedRun, conditions: Conditions, num_looks: int) -> list[str]:
    """Those with a fault first, then those whose ranks do the same work, then others, as far as there is room."""
    held = np.logical_or.reduce([(factor > 1).any(axis=0) for factor in conditions.held_down.values()])
    stage = plan.topology.index["pp"]
    alike = np.isin(stage, stage[held])
    order = np.argsort(np.where(held, 0, np.where(alike, 1, 2)), kind="stable")
    host_of = plan.hosts
    hosts = list(dict.fromkeys(host_of[rank] for rank in order))
    sick = len({host_of[rank] for rank in np.flatnonzero(held)})
    room = MOST_ROWS // (SERIES * num_looks * plan.gpus_per_host)
    return hosts[: max(room, sick + plan.topology.pp)]


def _series_of(
    gpu: _Gpu, conditions: Conditions, looks_ns: Int64s, timeline: Timeline
) -> Iterator[tuple[str, HostSeries]]:
    """Counters of throttling, clocks and temperature."""
    none = np.ones(len(timeline.begin_ns))
    factor = {
        counter: conditions.held_down[counter][:, gpu.rank] if counter in conditions.held_down else none
        for counter in THROTTLING.values()
    }
    usual = {counter: gpu.at_cap if counter == THROTTLING["power"] else 0.0 for counter in factor}
    held = {counter: np.maximum(usual[counter], held_down_share(one)) for counter, one in factor.items()}
    for counter, share in held.items():
        yield counter, _counter(gpu, _grown_ns(share, usual[counter], looks_ns, timeline), looks_ns, timeline)
    slowed = np.prod(list(factor.values()), axis=0)
    levels = {
        Metric.GPU_SM_CLOCK_MHZ: (FULL_MHZ / slowed, FULL_MHZ),
        Metric.GPU_TEMPERATURE_C: (COOL_C + (HOT_C - COOL_C) * held[THROTTLING["heat"]], COOL_C),
    }
    for metric, (value, before) in levels.items():
        mean = np.diff(_grown_ns(value, before, looks_ns, timeline)) / np.diff(looks_ns)
        yield metric, _told(gpu, looks_ns[1:], mean, timeline)


def held_down_share(factor: Floats) -> Floats:
    """Share of its time for which a GPU's clocks are held down, where its work takes ``factor`` times as long."""
    return np.asarray(np.minimum(1.0, (1.0 - 1.0 / factor) / (1.0 - LOW)))


def _grown_ns(rate: Floats, before: float, looks_ns: Int64s, timeline: Timeline) -> Floats:
    """What something has come to at each look: it grows by ``rate`` of the time in each step, else by ``before``."""
    edges = np.array([looks_ns[0], *timeline.begin_ns, timeline.end_ns, looks_ns[-1]])
    grown = np.cumsum([0.0, *(np.diff(edges) * np.array([before, *rate, before]))])
    return np.asarray(np.interp(looks_ns, edges, grown))


def _counter(gpu: _Gpu, stands: Floats, looks_ns: Int64s, timeline: Timeline) -> HostSeries:
    """Told where it moved since it was last told, and once a minute in any case."""
    told = [1]
    for look in range(2, len(looks_ns)):
        moved = stands[look] > stands[told[-1]]
        if moved or looks_ns[look] - looks_ns[told[-1]] >= REPEAT_S * NS_PER_S:
            told.append(look)
    return _told(gpu, looks_ns[told], np.rint(stands[told]), timeline)


def _told(gpu: _Gpu, at_ns: Int64s, value: Floats, timeline: Timeline) -> HostSeries:
    read_ns = timeline.clocks.read(gpu.host, at_ns)
    return HostSeries(host=gpu.host, device=gpu.device, at_ns=read_ns, value=value, mean=value)


def _seen(gpu: _Gpu, at_ns: int) -> HostEvent:
    uuid = f"GPU-{uuid5(NAMESPACE_OID, f'{gpu.host}/{gpu.device}')}"
    return HostEvent(host=gpu.host, device=gpu.device, at_ns=at_ns, name=Happening.GPU_SEEN.value, text=uuid)


NS_PER_S = 1_000_000_000


def told_by_agents(plan: SimulatedRun, conditions: Conditions, draws: Draws, timeline: Timeline) -> Fleet:
    """Events and samples of all hosts that have something to tell."""
    if not conditions.silences and not conditions.held_down:
        return NO_FLEET
    gpus = look_at_gpus(plan, conditions, draws, timeline)
    links = [event for silence in conditions.silences for event in _lost_link(silence, timeline)]
    events = sorted((*links, *gpus.events), key=lambda event: (event.at_ns, event.host, event.device, event.name))
    return Fleet(series=gpus.series, events=tuple(events))


def _lost_link(silence: Silence, timeline: Timeline) -> tuple[HostEvent, HostEvent]:
    """Both ends of an outage: from when the first of the card's groups had met."""
    down_ns = timeline.met_ns[silence.row, list(silence.ranks)].min()
    up_ns = down_ns + round(silence.seconds * NS_PER_S)
    down, up = timeline.clocks.read(silence.host, np.array([down_ns, up_ns])).tolist()
    return (
        _event(silence, down, Happening.LINK_DOWN, "no carrier"),
        _event(silence, up, Happening.LINK_UP, "carrier"),
    )


def _event(silence: Silence, at_ns: int, name: Happening, text: str) -> HostEvent:
    return HostEvent(host=silence.host, device=silence.device, at_ns=at_ns, name=name.value, text=text)
