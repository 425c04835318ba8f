"""Which GPU a rank computes on, and what GPUs did during each step.

rank 5 said gpu_uuid  ->  the device that a gpu-seen event of its host gave this UUID
it said nothing       ->  the n-th rank of a host has gpu<n>, as launchers hand them out: assumed, no more, because
                          CUDA_VISIBLE_DEVICES may name them in another order
it computes on a CPU  ->  none

counter  o.......o/o''o''o     growth between a step's two ends, by straight lines between what was told (o)
steps    |----|----|----|

Counters of hosts: they start anywhere and grow; one that falls has begun anew.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagnose.model.fleet import FloatVector, HostSeries, IntVector
from diagnose.model.view import FloatMatrix, RunView
from telemetry.host_metrics import Happening
from telemetry.thinning import REPEAT_S


def total_growth(series: HostSeries) -> FloatVector:
    """By how much a counter has grown since its first look, at each look."""
    if not len(series.value):
        return np.zeros(0)
    return np.concatenate([[0.0], np.cumsum(np.maximum(np.diff(series.value), 0.0))])


def knots(series: HostSeries, until_ns: int) -> tuple[FloatVector, FloatVector]:
    """How far a counter had grown, over nanoseconds since its first look. It stood still where it was not told for
    longer than usual, and since it was last told."""
    counted = total_growth(series)
    gaps = np.diff(series.at_ns)
    usual_ns = _usual_gap_ns(gaps)
    still = np.flatnonzero(gaps > 1.5 * usual_ns)
    at_ns = np.concatenate([series.at_ns, series.at_ns[still + 1] - usual_ns, [max(until_ns, int(series.at_ns[-1]))]])
    stood = np.concatenate([counted, counted[still], counted[-1:]])
    order = np.argsort(at_ns, kind="stable")
    return (at_ns[order] - series.at_ns[0]).astype(np.float64), stood[order]


def _usual_gap_ns(gaps: IntVector) -> int:
    """Between two looks at a counter that moves. How often one is told that stands still says nothing about it."""
    moving = gaps[gaps < 0.9 * REPEAT_S * 1e9]
    some = moving if len(moving) else gaps
    return int(np.median(some)) if len(some) else 0


UUID_WORD = "gpu_uuid"
"""In what a rank says about itself: the UUID of its GPU, with ``GPU-`` in front or not."""
DEVICE_WORD = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU of a host: ``gpu3`` of ``node-07``."""

    host: str
    device: str


def is_gpu(device: str) -> bool:
    return device.startswith("gpu") and device[3:].isdigit()


def gpu_of_ranks(view: RunView) -> tuple[Gpu | None, ...]:
    """The GPU of each rank; None where it has none, or nobody knows which."""
    device_of = _device_of_uuid(view)
    hosts_seen = {host for host, _ in device_of}
    places: dict[str, int] = {}
    found: list[Gpu | None] = []
    for rank, host in enumerate(view.hosts):
        place = places[host] = places.get(host, -1) + 1
        uuid = _uuid_of_rank(view, rank)
        if not host or computes_on_cpu(view, rank):
            found.append(None)
        elif uuid and host in hosts_seen:
            device = device_of.get((host, uuid))
            found.append(None if device is None else Gpu(host=host, device=device))
        else:
            found.append(Gpu(host=host, device=f"gpu{place}"))
    return tuple(found)


def assumed_ranks(view: RunView) -> frozenset[int]:
    """Ranks that share their host with others and of whom nobody said which of its GPUs they have."""
    hosts_seen = {host for host, _ in _device_of_uuid(view)}
    ranks_of_host = Counter(view.hosts)
    return frozenset(
        rank
        for rank, host in enumerate(view.hosts)
        if ranks_of_host[host] > 1 and not (_uuid_of_rank(view, rank) and host in hosts_seen)
    )


def _uuid_of_rank(view: RunView, rank: int) -> str:
    return _plain(view.words[rank].get(UUID_WORD, "")) if rank < len(view.words) else ""


def computes_on_cpu(view: RunView, rank: int) -> bool:
    """Whether it said so."""
    return rank < len(view.words) and view.words[rank].get(DEVICE_WORD) == "cpu"


def _device_of_uuid(view: RunView) -> dict[tuple[str, str], str]:
    seen = view.fleet.named(Happening.GPU_SEEN)
    return {(event.host, _plain(event.text)): event.device for event in seen if event.text}


def _plain(uuid: str) -> str:
    return uuid.strip().lower().removeprefix("gpu-")


def series_of_ranks(view: RunView, metric: str, gpus: Sequence[Gpu | None]) -> list[HostSeries | None]:
    """The series of a metric for the GPU of each rank."""
    by_gpu = {Gpu(host=one.host, device=one.device): one for one in view.fleet.of(metric)}
    return [None if gpu is None else by_gpu.get(gpu) for gpu in gpus]


def growth_in_steps(view: RunView, series: Sequence[HostSeries | None]) -> FloatMatrix:
    """By how much a counter of each rank's GPU grew in each step, [steps, ranks]; NaN where it was not looked at."""
    grown = np.full((len(view.steps), len(series)), np.nan)
    if view.step_start_ns is None:
        return grown
    until_ns = _looked_at_until(view)
    for rank, one in enumerate(series):
        if one is not None and len(one.at_ns):
            at_ns, counted = knots(one, until_ns[one.host, one.device])
            begin_ns = (view.step_start_ns - one.at_ns[0]).astype(np.float64)
            end_ns = begin_ns + view.step_ns
            grown[:, rank] = np.interp(end_ns, at_ns, counted) - np.interp(begin_ns, at_ns, counted)
            grown[(begin_ns < 0) | (end_ns > at_ns[-1]), rank] = np.nan
    return grown


def _looked_at_until(view: RunView) -> dict[tuple[str, str], int]:
    """When each GPU was last looked at, by any of its series: counters that stand still are told rarely."""
    newest: dict[tuple[str, str], int] = {}
    for many in view.fleet.series.values():
        for one in many:
            if len(one.at_ns) and is_gpu(one.device):
                key = one.host, one.device
                newest[key] = max(newest.get(key, 0), int(one.at_ns[-1]))
    return newest


def level_between(series: HostSeries | None, first_ns: float, last_ns: float) -> float:
    """The mean of a level over a while; NaN where nobody looked."""
    if series is None:
        return float("nan")
    inside = (series.at_ns > first_ns) & (series.at_ns <= last_ns)
    return float(np.mean(series.mean[inside])) if inside.any() else float("nan")
