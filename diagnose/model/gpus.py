"""The GPU of each rank, and the growth of counters in each step.

    rank 5 reported gpu_uuid  ->  the device with this UUID in a gpu-seen event of its host
    it reported none          ->  the n-th rank of a host has gpu<n>, as launchers assign them. This is only assumed:
                                  CUDA_VISIBLE_DEVICES may name them in another order
    it computes on a CPU      ->  none

    counter  o.......o/o''o''o     growth between the two ends of a step, interpolated between samples (o)
    steps    |----|----|----|

Counters start at any value and grow. A counter that falls has restarted.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from diagnose.model.fleet import HostSeries
from diagnose.model.operations import Floats
from diagnose.model.view import RunView
from telemetry.host_metrics import REPEAT_S, Happening
from telemetry.records import GPU_UUID


def total_growth(series: HostSeries) -> Floats:
    """Growth of a counter since its first sample, at each sample."""
    return np.cumsum(np.maximum(np.diff(series.value, prepend=series.value[:1]), 0.0))


LATE = 1.5
"""A counter without a sample for this many usual gaps did not change."""


def usual_gap_ns(series: HostSeries) -> int:
    """Time between two samples of a counter that changes. 0 with fewer than two samples."""
    gaps = np.diff(series.at_ns)
    moving = gaps[gaps < 0.9 * REPEAT_S * 1e9]  # a counter that does not change is sampled at fixed times
    usual_gaps = moving if len(moving) else gaps
    return int(np.median(usual_gaps)) if len(usual_gaps) else 0


def knots(series: HostSeries, until_ns: int) -> tuple[Floats, Floats]:
    """Times in nanoseconds since the first sample, and the growth of a counter up to them.

    A counter without samples for longer than usual did not change. The same holds after its last sample.
    """
    counted = total_growth(series)
    usual_ns = usual_gap_ns(series)
    still = np.flatnonzero(np.diff(series.at_ns) > LATE * usual_ns)
    at_ns = np.concatenate([series.at_ns, series.at_ns[still + 1] - usual_ns, [max(until_ns, int(series.at_ns[-1]))]])
    stood = np.concatenate([counted, counted[still], counted[-1:]])
    order = np.argsort(at_ns, kind="stable")
    return (at_ns[order] - series.at_ns[0]).astype(np.float64), stood[order]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU of a host: ``gpu3`` of ``node-07``."""

    host: str
    device: str


def is_gpu(device: str) -> bool:
    return device.startswith("gpu") and device[3:].isdigit()


def gpu_of_ranks(view: RunView) -> tuple[Gpu | None, ...]:
    """The GPU of each rank. None if it has none, or if it is not known."""
    return gpus_of(view.hosts, view.meta, _device_of_uuid(view), view.places_on_host)


def gpus_of(
    hosts: Sequence[str],
    meta: Sequence[Mapping[str, str]],
    device_of: Mapping[tuple[str, str], str],
    places_on_host: Sequence[int] = (),
) -> tuple[Gpu | None, ...]:
    """The GPU of each rank. None if it has none, or if it is not known.

    Args:
        hosts: by rank.
        meta: what each rank reported at its start. Empty if nothing is known.
        device_of: host and UUID in the form of :func:`plain_uuid` -> device.
        places_on_host: number of the GPU of each rank, if it reported none. Empty: the n-th rank of a host has gpu<n>.
    """
    hosts_seen = {host for host, _ in device_of}
    last_place: dict[str, int] = {}
    found: list[Gpu | None] = []
    for rank, host in enumerate(hosts):
        counted = last_place[host] = last_place.get(host, -1) + 1
        place = places_on_host[rank] if places_on_host else counted
        uuid = reported_uuid(meta[rank]) if meta else ""
        if not host or (meta and on_cpu(meta[rank])):
            found.append(None)
        elif uuid and host in hosts_seen:
            device = device_of.get((host, uuid))
            found.append(None if device is None else Gpu(host=host, device=device))
        else:
            found.append(Gpu(host=host, device=f"gpu{place}"))
    return tuple(found)


def assumed_ranks(view: RunView) -> frozenset[int]:
    """Ranks that share their host with other ranks and whose GPU is not known."""
    hosts_seen = {host for host, _ in _device_of_uuid(view)}
    ranks_of_host = Counter(view.hosts)
    return frozenset(
        rank
        for rank, host in enumerate(view.hosts)
        if ranks_of_host[host] > 1 and not (_uuid_of_rank(view, rank) and host in hosts_seen)
    )


def _uuid_of_rank(view: RunView, rank: int) -> str:
    return reported_uuid(view.meta[rank]) if rank < len(view.meta) else ""


def reported_uuid(meta: Mapping[str, str]) -> str:
    """The UUID that a rank reported, in the form of :func:`plain_uuid`. Empty if it reported none."""
    return plain_uuid(meta.get(GPU_UUID, ""))


def computes_on_cpu(view: RunView, rank: int) -> bool:
    """Whether the rank reported that it computes on a CPU."""
    return rank < len(view.meta) and on_cpu(view.meta[rank])


def on_cpu(meta: Mapping[str, str]) -> bool:
    """Whether a rank reported that it computes on a CPU."""
    return meta.get("device") == "cpu"


def _device_of_uuid(view: RunView) -> dict[tuple[str, str], str]:
    events = view.fleet.named(Happening.GPU_SEEN)
    return {(event.host, plain_uuid(event.text)): event.device for event in events if event.text}


def plain_uuid(uuid: str) -> str:
    """The UUID in one form: NVML writes ``GPU-1a2b...``, torch ``1a2b...``."""
    return uuid.strip().lower().removeprefix("gpu-")


def series_of_ranks(view: RunView, metric: str, gpus: Sequence[Gpu | None]) -> list[HostSeries | None]:
    """The series of a metric for the GPU of each rank."""
    by_gpu = {Gpu(host=series.host, device=series.device): series for series in view.fleet.of(metric)}
    return [None if gpu is None else by_gpu.get(gpu) for gpu in gpus]


def growth_in_steps(view: RunView, series: Sequence[HostSeries | None]) -> Floats:
    """Growth of a counter of each rank's GPU in each step, [steps, ranks]. NaN if it was not sampled."""
    grown = np.full((len(view.steps), len(series)), np.nan)
    if view.step_start_ns is None:
        return grown
    until_ns = _last_sample_ns(view)
    for rank, counter in enumerate(series):
        if counter is not None and len(counter.at_ns):
            at_ns, counted = knots(counter, until_ns[counter.host, counter.device])
            begin_ns = (view.step_start_ns - counter.at_ns[0]).astype(np.float64)
            end_ns = begin_ns + view.step_ns
            grown[:, rank] = np.interp(end_ns, at_ns, counted) - np.interp(begin_ns, at_ns, counted)
            grown[(begin_ns < 0) | (end_ns > at_ns[-1]), rank] = np.nan
    return grown


def _last_sample_ns(view: RunView) -> dict[tuple[str, str], int]:
    """Time of the last sample of each GPU in any series: counters that do not change are sent rarely."""
    newest: dict[tuple[str, str], int] = {}
    for series in chain.from_iterable(view.fleet.series.values()):
        if len(series.at_ns) and is_gpu(series.device):
            key = series.host, series.device
            newest[key] = max(newest.get(key, 0), int(series.at_ns[-1]))
    return newest


def level_between(series: HostSeries | None, first_ns: float, last_ns: float) -> float:
    """The mean of a level over a time range. NaN without samples."""
    if series is None:
        return float("nan")
    inside = (series.at_ns > first_ns) & (series.at_ns <= last_ns)
    return float(np.mean(series.mean[inside])) if inside.any() else float("nan")
