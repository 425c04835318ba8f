"""Hand-made fleets: metrics and events of hosts, for views of ``made_view.py``.

    made_fleet(
        made_series(Metric.NIC_UP, "gpu-00", "eth0", at_ns, up),
        made_event(Happening.LINK_DOWN, "gpu-00", "eth0", at_ns=at_ns[7]),
    )

Times are those of the view's steps: ``timed`` gives a made view the wall clock that it lacks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from diagnose.model.fleet import Fleet, HostEvent, HostSeries
from diagnose.model.view import RunView

BEGAN_NS = 1_790_000_000_000_000_000
"""Wall clock at which the first step of a timed view begins."""
SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeSeries:
    """A series and its metric."""

    metric: str
    series: HostSeries


def made_series(
    metric: str,
    host: str,
    device: str,
    at_ns: Sequence[int] | npt.NDArray[np.int64],
    value: float | Sequence[float] | npt.NDArray[np.float64],
    *,
    mean: Sequence[float] | npt.NDArray[np.float64] | None = None,
) -> MadeSeries:
    """A metric of a device at these times; one number stands for all of them. ``mean`` is ``value`` unless given."""
    times = np.asarray(at_ns, dtype=np.int64)
    values = np.broadcast_to(np.asarray(value, dtype=np.float64), times.shape).copy()
    means = values if mean is None else np.asarray(mean, dtype=np.float64)
    return MadeSeries(
        metric=str(metric), series=HostSeries(host=host, device=device, at_ns=times, value=values, mean=means)
    )


def made_event(name: str, host: str, device: str = "", *, at_ns: int, text: str = "") -> HostEvent:
    """Something that happened on a host."""
    return HostEvent(host=host, device=device, at_ns=int(at_ns), name=str(name), text=text)


def made_fleet(*parts: MadeSeries | HostEvent, seen_ns: int | None = None) -> Fleet:
    """A fleet of series and events in any order. ``seen_ns`` is the newest of their times unless given."""
    series: dict[str, tuple[HostSeries, ...]] = {}
    for part in parts:
        if isinstance(part, MadeSeries):
            series[part.metric] = (*series.get(part.metric, ()), part.series)
    events = sorted((part for part in parts if isinstance(part, HostEvent)), key=lambda event: event.at_ns)
    told = [int(one.at_ns[-1]) for many in series.values() for one in many if len(one.at_ns)]
    newest = max([*told, *(event.at_ns for event in events)], default=0)
    return Fleet(series=series, events=tuple(events), seen_ns=newest if seen_ns is None else seen_ns)


def timed(view: RunView, *, began_ns: int = BEGAN_NS) -> RunView:
    """The view with its steps one after the other on the wall clock, the first at ``began_ns``."""
    ends = np.cumsum(view.step_ns).astype(np.int64)
    return replace(view, step_start_ns=began_ns + np.concatenate([[0], ends[:-1]]).astype(np.int64))


def looks_over(view: RunView, *, every_ns: int = SECOND_NS, before_ns: int = 0) -> npt.NDArray[np.int64]:
    """Times of samples of a host from ``before_ns`` before a timed view's first step to the end of its last one."""
    assert view.step_start_ns is not None, "timed(view) first"
    first, last = int(view.step_start_ns[0]) - before_ns, int(view.step_start_ns[-1] + view.step_ns[-1])
    return np.arange(first, last + every_ns, every_ns, dtype=np.int64)
