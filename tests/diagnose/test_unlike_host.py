"""Machine similarity: a host that measures otherwise than its like, for minutes, and only where something is wrong."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from diagnose.detectors.host_grid import grid_of, on_grid
from diagnose.detectors.unlike_host import detect_unlike_host
from diagnose.findings import Finding, Kind, Severity
from diagnose.fleet import HostSeries
from diagnose.view import FloatMatrix, FloatVector, IntVector, RunView
from telemetry.host_metrics import Metric
from telemetry.topology import Topology
from tests.diagnose.made_fleet import BEGAN_NS, SECOND_NS, made_fleet, made_series, timed
from tests.diagnose.made_view import make_view

SECONDS = np.arange(0, 900, 5)
"""A quarter of an hour as agents tell it."""
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

Change = Callable[[Metric, FloatMatrix], None]
"""Changes values [hosts, times] of a metric in place."""


def told(
    num_hosts: int = 8, *, jitter: float = 0.05, spread: float = 0.02, seed: int = 0, change: Change | None = None
) -> dict[Metric, FloatMatrix]:
    """Values of healthy hosts of one kind: the same level with a lasting spread and jitter of each sample."""
    random = np.random.default_rng(seed)
    found = {}
    for metric, level in LEVELS.items():
        lasting = np.exp(random.normal(0.0, spread, (num_hosts, 1)))
        found[metric] = level * lasting * np.exp(random.normal(0.0, jitter, (num_hosts, len(SECONDS))))
        if change is not None:
            change(metric, found[metric])
    return found


def seen(values: dict[Metric, FloatMatrix], *, view: RunView | None = None, seconds: IntVector = SECONDS) -> RunView:
    """A view of hosts of eight ranks that told this; of a silent trainer unless ``view`` is given."""
    num_hosts = len(next(iter(values.values())))
    view = silent(num_hosts) if view is None else view
    at_ns = BEGAN_NS + seconds.astype(np.int64) * SECOND_NS
    parts = [
        made_series(metric, host, "", at_ns, as_told(metric, rows[row]))
        for metric, rows in values.items()
        for row, host in enumerate(dict.fromkeys(view.hosts))
    ]
    return replace(view, fleet=made_fleet(*parts))


def as_told(metric: Metric, rates: FloatVector) -> FloatVector:
    return np.cumsum(rates * 5.0) if metric in COUNTERS else rates


def silent(num_hosts: int) -> RunView:
    view = make_view(Topology(dp=4 * num_hosts, tp=2), num_steps=1)
    nothing = view.steps[:0]
    return replace(view, steps=nothing, step_ns=view.step_ns[:0], step_start_ns=nothing, work={})


def odd(metric: Metric, factor: float, *, from_s: float = 300.0, until_s: float = 900.0) -> Change:
    """One host at ``factor`` times the level of this metric for a time."""

    def change(of: Metric, values: FloatMatrix) -> None:
        if of is metric:
            values[ODD, (from_s <= SECONDS) & (until_s > SECONDS)] *= factor

    return change


def the_finding(view: RunView) -> Finding:
    (finding,) = detect_unlike_host(view)
    return finding


@pytest.mark.parametrize("num_hosts", [4, 8, 40])
@pytest.mark.parametrize("seed", range(8))
def test_healthy_hosts_are_alike(num_hosts: int, seed: int) -> None:
    assert detect_unlike_host(seen(told(num_hosts, seed=seed))) == []


@pytest.mark.parametrize("num_hosts", [4, 12])
@pytest.mark.parametrize("seed", range(8))
def test_heavy_jitter_without_a_culprit_yields_nothing(num_hosts: int, seed: int) -> None:
    assert detect_unlike_host(seen(told(num_hosts, jitter=1.0, spread=0.1, seed=seed))) == []


@pytest.mark.parametrize("num_hosts", [4, 6, 12, 40])
@pytest.mark.parametrize("seed", range(8))
def test_hosts_that_lastingly_differ_from_each_other_yield_nothing(num_hosts: int, seed: int) -> None:
    assert detect_unlike_host(seen(told(num_hosts, spread=0.4, seed=seed))) == []


@pytest.mark.parametrize("seed", range(5))
def test_what_changes_for_all_is_no_difference(seed: int) -> None:
    def common(_: Metric, values: FloatMatrix) -> None:
        values *= 1.0 + 0.5 * np.sin(SECONDS / 140.0)
        values[:, SECONDS > 500] *= 0.2
        values[:, (SECONDS > 200) & (SECONDS < 260)] = 0.0

    assert detect_unlike_host(seen(told(seed=seed, change=common))) == []


@pytest.mark.parametrize("num_hosts", [4, 5, 8, 40])
@pytest.mark.parametrize(
    ("metric", "factor"), [(Metric.NIC_SEND_BYTES, 0.5), (Metric.HOST_CPU_BUSY, 0.0), (Metric.GPU_POWER_W, 0.3)]
)
@pytest.mark.parametrize("seed", range(3))
def test_one_host_that_is_odd_while_the_trainer_is_silent_is_named(
    num_hosts: int, metric: Metric, factor: float, seed: int
) -> None:
    finding = the_finding(seen(told(num_hosts, seed=seed, change=odd(metric, factor))))
    assert finding.kind is Kind.UNLIKE_HOST
    assert finding.severity is Severity.WARNING
    assert finding.hosts == [f"gpu-{ODD:02d}"]
    assert finding.ranks == list(range(8 * ODD, 8 * ODD + 8))
    assert finding.evidence["metric"] == metric
    assert finding.evidence["own"] == pytest.approx(LEVELS[metric] * factor, rel=0.2, abs=1e-9)
    assert finding.evidence["others"] == pytest.approx(LEVELS[metric], rel=0.2)
    assert abs(int(str(finding.evidence["since_ns"])) - BEGAN_NS - 300 * SECOND_NS) < 45 * SECOND_NS


def test_the_most_sensitive_metric_is_told_first_and_the_others_with_it() -> None:
    changes = [odd(metric, 0.1) for metric in (Metric.GPU_UTILIZATION, Metric.NIC_RECEIVE_BYTES)]

    def both(metric: Metric, values: FloatMatrix) -> None:
        for change in changes:
            change(metric, values)

    finding = the_finding(seen(told(change=both)))
    assert finding.evidence["metrics"] == ["nic-receive-bytes", "gpu-utilization"]
    assert "nic-receive-bytes" in finding.summary
    assert "so gpu-utilization" in finding.summary


@pytest.mark.parametrize(("from_s", "until_s"), [(700.0, 900.0), (200.0, 600.0), (0.0, 120.0)])
def test_what_is_too_short_or_over_again_is_not_told(from_s: float, until_s: float) -> None:
    change = odd(Metric.GPU_POWER_W, 0.2, from_s=from_s, until_s=until_s)
    assert detect_unlike_host(seen(told(change=change))) == []


@pytest.mark.parametrize("num_hosts", [4, 8, 40])
def test_a_host_that_was_unlike_when_all_that_is_known_begins_is_named_if_it_is_so_by_far(num_hosts: int) -> None:
    idle, slower = (odd(Metric.HOST_CPU_BUSY, factor, from_s=0.0) for factor in (0.02, 0.5))
    assert the_finding(seen(told(num_hosts, change=idle))).hosts == ["gpu-03"]
    assert detect_unlike_host(seen(told(num_hosts, change=slower))) == []


def test_how_long_it_must_last_can_be_chosen() -> None:
    view = seen(told(change=odd(Metric.GPU_POWER_W, 0.2, from_s=700.0)))
    assert len(detect_unlike_host(view, persist_s=120.0)) == 1


def test_a_small_difference_among_hosts_that_are_all_but_equal_is_none() -> None:
    change = odd(Metric.NIC_SEND_BYTES, 0.9)
    assert detect_unlike_host(seen(told(jitter=0.001, spread=0.0, change=change))) == []


@pytest.mark.parametrize("num_hosts", [1, 2, 3])
def test_fewer_than_four_hosts_cannot_be_told_apart(num_hosts: int) -> None:
    def change(metric: Metric, values: FloatMatrix) -> None:
        if metric is Metric.GPU_POWER_W:
            values[0, 60:] *= 0.1

    assert detect_unlike_host(seen(told(num_hosts, change=change))) == []


def test_hosts_of_other_pipeline_stages_are_not_compared() -> None:
    """Of eight stages each has a host of its own: they do different work."""
    view = make_view(Topology(dp=1, pp=8, tp=8), num_steps=1)
    nothing = view.steps[:0]
    view = replace(view, steps=nothing, step_ns=view.step_ns[:0], work={})
    assert detect_unlike_host(seen(told(8, change=odd(Metric.GPU_POWER_W, 0.1)), view=view)) == []


def test_a_pipeline_stage_that_works_otherwise_is_no_odd_host() -> None:
    view = make_view(Topology(dp=5, pp=2, tp=8), num_steps=1)
    view = replace(view, steps=view.steps[:0], step_ns=view.step_ns[:0], work={})

    def second_stage(_: Metric, values: FloatMatrix) -> None:
        values[1::2] *= 0.5

    assert detect_unlike_host(seen(told(10, change=second_stage), view=view)) == []

    def odd_in_its_stage(metric: Metric, values: FloatMatrix) -> None:
        second_stage(metric, values)
        odd(Metric.GPU_POWER_W, 0.3)(metric, values)

    assert the_finding(seen(told(10, change=odd_in_its_stage), view=view)).hosts == ["gpu-03"]


@pytest.mark.parametrize("seed", range(5))
def test_a_host_that_restarts_is_not_unlike(seed: int) -> None:
    """Two minutes of silence, counters from zero, and a minute until it works like the others."""
    view = seen(told(seed=seed))
    back = (SECONDS < 400) | (SECONDS > 520)

    def restarted(metric: str, one: HostSeries) -> HostSeries:
        if one.host != f"gpu-{ODD:02d}":
            return one
        value = one.value.copy()
        after = SECONDS > 520
        if metric in COUNTERS:
            value[after] -= value[after][0]
        else:
            value[after & (SECONDS < 580)] *= 0.1
        return replace(one, at_ns=one.at_ns[back], value=value[back], mean=value[back])

    series = {metric: tuple(restarted(metric, one) for one in many) for metric, many in view.fleet.series.items()}
    assert detect_unlike_host(replace(view, fleet=replace(view.fleet, series=series))) == []


def test_a_host_that_falls_silent_is_left_out_and_another_one_found() -> None:
    view = seen(told(change=odd(Metric.GPU_POWER_W, 0.3)))
    series = {
        metric: tuple(
            replace(one, at_ns=one.at_ns[:60], value=one.value[:60], mean=one.mean[:60])
            if one.host == "gpu-05"
            else one
            for one in many
        )
        for metric, many in view.fleet.series.items()
    }
    assert the_finding(replace(view, fleet=replace(view.fleet, series=series))).hosts == ["gpu-03"]


def test_the_lowest_gpu_speaks_for_its_host() -> None:
    random = np.random.default_rng(0)
    at_ns = BEGAN_NS + SECONDS.astype(np.int64) * SECOND_NS
    clock = 1900.0 + random.normal(0.0, 5.0, (8, 8, len(SECONDS)))
    clock[ODD, 6, 60:] -= 700.0
    parts = [
        made_series(Metric.GPU_SM_CLOCK_MHZ, f"gpu-{host:02d}", f"gpu{gpu}", at_ns, clock[host, gpu])
        for host in range(8)
        for gpu in range(8)
    ]
    assert the_finding(replace(silent(8), fleet=made_fleet(*parts))).hosts == ["gpu-03"]


def stepping(num_steps: int = 120, *, slower_from: int | None = None, factor: float = 1.5) -> RunView:
    """Steps of about six seconds over a quarter of an hour, slower from one on."""
    view = make_view(Topology(dp=32, tp=2), num_steps=num_steps)
    step_ns = np.full(num_steps, 900e9 / num_steps) * np.exp(np.random.default_rng(0).normal(0, 0.01, num_steps))
    if slower_from is not None:
        step_ns[slower_from:] *= factor
    step_ns *= 900e9 / step_ns.sum()
    return timed(replace(view, step_ns=step_ns))


def test_a_host_that_looks_different_but_slows_nothing_is_left_alone() -> None:
    assert detect_unlike_host(seen(told(change=odd(Metric.GPU_POWER_W, 0.3)), view=stepping())) == []


def test_a_host_that_became_unlike_as_steps_became_slower_is_named() -> None:
    view = seen(told(change=odd(Metric.GPU_POWER_W, 0.3)), view=stepping(slower_from=50))
    finding = the_finding(view)
    assert finding.hosts == ["gpu-03"]
    assert finding.seconds_lost > 60
    assert "times as long since step 150" in finding.summary


@pytest.mark.parametrize("from_s", [20.0, 100.0])
def test_a_host_that_was_unlike_while_steps_were_fast_is_left_alone(from_s: float) -> None:
    values = told(change=odd(Metric.GPU_POWER_W, 0.3, from_s=from_s))
    assert detect_unlike_host(seen(values, view=stepping(slower_from=50))) == []


def test_slow_steps_without_an_unlike_host_yield_nothing() -> None:
    assert detect_unlike_host(seen(told(), view=stepping(slower_from=50))) == []


def test_steps_that_were_slow_for_a_while_need_no_explanation() -> None:
    view = stepping()
    step_ns = view.step_ns * np.where((np.arange(120) >= 50) & (np.arange(120) < 100), 1.5, 1.0)
    view = timed(replace(view, step_ns=step_ns * view.step_ns.sum() / step_ns.sum()))
    assert detect_unlike_host(seen(told(change=odd(Metric.GPU_POWER_W, 0.3)), view=view)) == []


def test_a_counter_that_begins_anew_goes_on_from_where_it_was() -> None:
    at_ns = BEGAN_NS + np.arange(5) * SECOND_NS
    fleet = made_fleet(made_series(Metric.NIC_SEND_BYTES, "one", "eth0", at_ns, [70.0, 80.0, 90.0, 5.0, 15.0]))
    grid = grid_of(fleet, ["one"], [Metric.NIC_SEND_BYTES])
    assert grid is not None
    (rates,) = on_grid(grid, fleet.of(Metric.NIC_SEND_BYTES), counter=True, of_devices="sum")
    assert rates[1:].tolist() == [10.0, 10.0, 0.0, 10.0]


def test_a_job_that_stands_still_is_explained_by_an_unlike_host() -> None:
    view = stepping(num_steps=120)
    standing = replace(
        view,
        steps=view.steps[:40],
        step_ns=view.step_ns[:40],
        step_start_ns=None if view.step_start_ns is None else view.step_start_ns[:40],
    )
    finding = the_finding(seen(told(change=odd(Metric.HOST_CPU_BUSY, 0.0)), view=standing))
    assert finding.hosts == ["gpu-03"]
    assert "no step was finished for" in finding.summary


def test_hosts_that_told_nothing_yield_nothing() -> None:
    assert detect_unlike_host(silent(8)) == []
    assert detect_unlike_host(replace(silent(8), fleet=made_fleet(seen_ns=BEGAN_NS))) == []


def test_one_of_many_hundred_hosts_is_named() -> None:
    values = told(700, change=odd(Metric.NIC_SEND_BYTES, 0.5))
    only = {metric: values[metric] for metric in (Metric.NIC_SEND_BYTES, Metric.HOST_CPU_BUSY)}
    assert the_finding(seen(only)).hosts == ["gpu-03"]
