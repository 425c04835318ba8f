"""Made views with metrics of GPUs: one GPU for each rank, sampled every second.

with_gpus(view, [Throttling(rank=5, share=0.6)])    rank 5's GPU is at its power cap for 60% of each step. The rank
                                                    is not slower: use make_view(slow=...) for that
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from diagnose.model.fleet import HostEvent
from diagnose.model.gpus import gpu_of_ranks
from diagnose.model.view import RunView
from telemetry.host_metrics import Metric
from tests.diagnose.made_fleet import MadeSeries, looks_over, made_fleet, made_series, timed

FULL_MHZ, LOW_MHZ = 1980.0, 1200.0
COUNTERS = (
    Metric.GPU_THROTTLE_POWER_NS,
    Metric.GPU_THROTTLE_SOFTWARE_THERMAL_NS,
    Metric.GPU_THROTTLE_POWER_BRAKE_NS,
    Metric.GPU_THROTTLE_SYNC_BOOST_NS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttling:
    """A GPU held down for a share of the time, from a row on, in all rows or in the given ones."""

    rank: int
    share: float
    metric: str = Metric.GPU_THROTTLE_POWER_NS
    from_row: int = 0
    rows: tuple[int, ...] | None = None


def with_gpus(
    view: RunView,
    throttling: Sequence[Throttling] = (),
    *parts: MadeSeries | HostEvent,
    everybody: float = 0.02,
    lottery: float = 0.0,
    seed: int = 0,
) -> RunView:
    """The view with wall times and a fleet.

    Each GPU is at its power cap for the share ``everybody`` of the time, plus a lasting random share up to ``lottery``.
    """
    view = timed(view)
    random = np.random.default_rng(seed)
    at_ns = looks_over(view, before_ns=5 * 10**9)
    series = list(parts)
    for rank, gpu in enumerate(gpu_of_ranks(view)):
        assert gpu is not None
        usual = float(np.clip(everybody + random.uniform(0.0, lottery), 0.0, 1.0))
        mine = [one for one in throttling if one.rank == rank]
        for metric in COUNTERS:
            share = np.full(len(at_ns), usual if metric == Metric.GPU_THROTTLE_POWER_NS else 0.0)
            for one in mine:
                if one.metric == metric:
                    share[_during(view, one, at_ns)] = one.share
            passed = np.diff(at_ns, prepend=at_ns[0])
            series.append(made_series(metric, gpu.host, gpu.device, at_ns, 1e12 + np.cumsum(share * passed)))
        clock = np.where(
            np.logical_or.reduce([_during(view, one, at_ns) for one in mine] or [at_ns < 0]), LOW_MHZ, FULL_MHZ
        )
        series.append(made_series(Metric.GPU_SM_CLOCK_MHZ, gpu.host, gpu.device, at_ns, clock))
    return replace(view, fleet=made_fleet(*series))


def _during(view: RunView, one: Throttling, at_ns: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Whether each sample is in a step with this throttling."""
    assert view.step_start_ns is not None
    row = np.searchsorted(view.step_start_ns, at_ns, side="left") - 1
    if one.rows is not None:
        return np.isin(row, one.rows)
    return np.asarray(row >= one.from_row)
