"""Made hosts with similar metrics, except for the changes of a test, and the steps of their ranks."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from diagnose.detectors.unlike_host import detect_unlike_host
from diagnose.findings import Finding
from diagnose.model.operations import Floats, Ints
from diagnose.model.view import RunView
from telemetry.host_metrics import Metric
from telemetry.topology import Topology
from tests.diagnose.made_fleet import BEGAN_NS, SECOND_NS, made_fleet, made_series, timed
from tests.diagnose.made_view import make_view

SECONDS = np.arange(0, 900, 5)
"""The times of the samples of agents in a quarter of an hour."""
LEVELS = {
    Metric.NIC_SEND_BYTES: 2e9,
    Metric.NIC_RECEIVE_BYTES: 2e9,
    Metric.HOST_CPU_BUSY: 0.4,
    Metric.GPU_UTILIZATION: 0.9,
    Metric.GPU_POWER_W: 600.0,
    Metric.HOST_RUN_QUEUE: 20.0,
    Metric.HOST_MEMORY_AVAILABLE_BYTES: 5e11,
}
COUNTERS = {Metric.NIC_SEND_BYTES, Metric.NIC_RECEIVE_BYTES}
ODD = 3
Change = Callable[[Metric, Floats], None]
"""Changes values [hosts, times] of a metric in place."""


def told(
    num_hosts: int = 8, *, jitter: float = 0.05, spread: float = 0.02, seed: int = 0, change: Change | None = None
) -> dict[Metric, Floats]:
    """Values of healthy hosts of one kind: the same level with a lasting spread and jitter of each sample."""
    random = np.random.default_rng(seed)
    found = {}
    for metric, level in LEVELS.items():
        lasting = np.exp(random.normal(0.0, spread, (num_hosts, 1)))
        found[metric] = level * lasting * np.exp(random.normal(0.0, jitter, (num_hosts, len(SECONDS))))
        if change is not None:
            change(metric, found[metric])
    return found


def seen(values: dict[Metric, Floats], *, view: RunView | None = None, seconds: Ints = SECONDS) -> RunView:
    """A view of hosts of eight ranks with these metrics. Without ``view``, its ranks have recorded no steps."""
    num_hosts = len(next(iter(values.values())))
    view = silent(num_hosts) if view is None else view
    at_ns = BEGAN_NS + seconds.astype(np.int64) * SECOND_NS
    parts = [
        made_series(metric, host, "", at_ns, as_told(metric, rows[row]))
        for metric, rows in values.items()
        for row, host in enumerate(dict.fromkeys(view.hosts))
    ]
    return replace(view, fleet=made_fleet(*parts))


def as_told(metric: Metric, rates: Floats) -> Floats:
    return np.cumsum(rates * 5.0) if metric in COUNTERS else rates


def silent(num_hosts: int) -> RunView:
    view = make_view(Topology(dp=4 * num_hosts, tp=2), num_steps=1)
    nothing = view.steps[:0]
    return replace(view, steps=nothing, step_ns=view.step_ns[:0], step_start_ns=nothing, work={})


def odd(metric: Metric, factor: float, *, from_s: float = 300.0, until_s: float = 900.0) -> Change:
    """One host at ``factor`` times the level of this metric for a time."""

    def change(of: Metric, values: Floats) -> None:
        if of is metric:
            values[ODD, (from_s <= SECONDS) & (until_s > SECONDS)] *= factor

    return change


def the_finding(view: RunView) -> Finding:
    (finding,) = detect_unlike_host(view)
    return finding


def stepping(num_steps: int = 120, *, slower_from: int | None = None, factor: float = 1.5) -> RunView:
    """Steps of about six seconds over a quarter of an hour, slower from one on."""
    view = make_view(Topology(dp=32, tp=2), num_steps=num_steps)
    step_ns = np.full(num_steps, 900e9 / num_steps) * np.exp(np.random.default_rng(0).normal(0, 0.01, num_steps))
    if slower_from is not None:
        step_ns[slower_from:] *= factor
    step_ns *= 900e9 / step_ns.sum()
    return timed(replace(view, step_ns=step_ns))
