"""unlike-host: a host that differs from similar hosts for minutes is reported, if the job has a problem."""

from dataclasses import replace

import numpy as np
import pytest

from diagnose.detectors.unlike_host import detect_unlike_host
from diagnose.findings import Kind, Severity
from diagnose.model.fleet import HostSeries
from diagnose.model.operations import Floats
from telemetry.host_metrics import Metric
from telemetry.topology import Topology
from tests.diagnose.made_fleet import BEGAN_NS, SECOND_NS, made_fleet, made_series
from tests.diagnose.made_hosts import COUNTERS, LEVELS, ODD, SECONDS, odd, seen, silent, the_finding, told
from tests.diagnose.made_view import make_view
from tests.diagnose.over_seeds import over_seeds
from tests.each_case import each_case


@each_case("num_hosts", [4, 8, 40])
@over_seeds(range(8))
def test_healthy_hosts_yield_nothing(num_hosts: int, seed: int) -> None:
    assert detect_unlike_host(seen(told(num_hosts, seed=seed))) == []


@each_case("num_hosts", [4, 12])
@over_seeds(range(8))
def test_heavy_jitter_without_a_culprit_yields_nothing(num_hosts: int, seed: int) -> None:
    assert detect_unlike_host(seen(told(num_hosts, jitter=1.0, spread=0.1, seed=seed))) == []


@each_case("num_hosts", [4, 6, 12, 40])
@over_seeds(range(8))
def test_constant_differences_between_hosts_yield_nothing(num_hosts: int, seed: int) -> None:
    assert detect_unlike_host(seen(told(num_hosts, spread=0.4, seed=seed))) == []


@over_seeds(range(5))
def test_changes_on_all_hosts_yield_nothing(seed: int) -> None:
    def common(_: Metric, values: Floats) -> None:
        values *= 1.0 + 0.5 * np.sin(SECONDS / 140.0)
        values[:, SECONDS > 500] *= 0.2
        values[:, (SECONDS > 200) & (SECONDS < 260)] = 0.0

    assert detect_unlike_host(seen(told(seed=seed, change=common))) == []


@each_case("num_hosts", [4, 5, 8, 40])
@each_case(("metric", "factor"), [(Metric.NIC_SEND_BYTES, 0.5), (Metric.HOST_CPU_BUSY, 0.0), (Metric.GPU_POWER_W, 0.3)])
@over_seeds(range(3))
def test_host_that_becomes_unlike_is_named_when_the_run_has_no_steps(
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


def test_most_sensitive_metric_is_reported_first_followed_by_the_others() -> None:
    changes = [odd(metric, 0.1) for metric in (Metric.GPU_UTILIZATION, Metric.NIC_RECEIVE_BYTES)]

    def both(metric: Metric, values: Floats) -> None:
        for change in changes:
            change(metric, values)

    finding = the_finding(seen(told(change=both)))
    assert finding.evidence["metrics"] == ["nic-receive-bytes", "gpu-utilization"]
    assert "nic-receive-bytes" in finding.summary
    assert "so gpu-utilization" in finding.summary


@each_case(("from_s", "until_s"), [(700.0, 900.0), (200.0, 600.0), (0.0, 120.0)])
def test_difference_that_is_too_short_or_has_ended_is_not_reported(from_s: float, until_s: float) -> None:
    change = odd(Metric.GPU_POWER_W, 0.2, from_s=from_s, until_s=until_s)
    assert detect_unlike_host(seen(told(change=change))) == []


@each_case("num_hosts", [4, 8, 40])
def test_host_unlike_since_the_first_sample_is_named_only_for_a_large_difference(num_hosts: int) -> None:
    idle, slower = (odd(Metric.HOST_CPU_BUSY, factor, from_s=0.0) for factor in (0.02, 0.5))
    assert the_finding(seen(told(num_hosts, change=idle))).hosts == ["gpu-03"]
    assert detect_unlike_host(seen(told(num_hosts, change=slower))) == []


def test_shorter_difference_is_reported_with_a_lower_persist_s() -> None:
    view = seen(told(change=odd(Metric.GPU_POWER_W, 0.2, from_s=700.0)))
    assert len(detect_unlike_host(view, persist_s=120.0)) == 1


def test_small_difference_among_nearly_equal_hosts_yields_nothing() -> None:
    change = odd(Metric.NIC_SEND_BYTES, 0.9)
    assert detect_unlike_host(seen(told(jitter=0.001, spread=0.0, change=change))) == []


@each_case("num_hosts", [1, 2, 3])
def test_fewer_than_four_hosts_yield_nothing(num_hosts: int) -> None:
    def change(metric: Metric, values: Floats) -> None:
        if metric is Metric.GPU_POWER_W:
            values[0, 60:] *= 0.1

    assert detect_unlike_host(seen(told(num_hosts, change=change))) == []


def test_hosts_of_different_pipeline_stages_are_not_compared() -> None:
    """Each of the eight stages has its own host, so the hosts do different work."""
    view = make_view(Topology(dp=1, pp=8, tp=8), num_steps=1)
    nothing = view.steps[:0]
    view = replace(view, steps=nothing, step_ns=view.step_ns[:0], work={})
    assert detect_unlike_host(seen(told(8, change=odd(Metric.GPU_POWER_W, 0.1)), view=view)) == []


def test_host_is_compared_only_with_hosts_of_its_pipeline_stage() -> None:
    view = make_view(Topology(dp=5, pp=2, tp=8), num_steps=1)
    view = replace(view, steps=view.steps[:0], step_ns=view.step_ns[:0], work={})

    def second_stage(_: Metric, values: Floats) -> None:
        values[1::2] *= 0.5

    assert detect_unlike_host(seen(told(10, change=second_stage), view=view)) == []

    def odd_in_its_stage(metric: Metric, values: Floats) -> None:
        second_stage(metric, values)
        odd(Metric.GPU_POWER_W, 0.3)(metric, values)

    assert the_finding(seen(told(10, change=odd_in_its_stage), view=view)).hosts == ["gpu-03"]


@over_seeds(range(5))
def test_restarted_host_is_not_reported(seed: int) -> None:
    """No samples for two minutes, then counters from zero. One minute later the host works like the others."""
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


def test_host_without_newer_samples_is_ignored_and_the_unlike_host_is_named() -> None:
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


def test_host_is_named_for_its_gpu_with_the_lowest_clock() -> None:
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


def test_hosts_without_samples_yield_nothing() -> None:
    assert detect_unlike_host(silent(8)) == []
    assert detect_unlike_host(replace(silent(8), fleet=made_fleet(seen_ns=BEGAN_NS))) == []


def test_one_of_many_hundred_hosts_is_named() -> None:
    values = told(700, change=odd(Metric.NIC_SEND_BYTES, 0.5))
    only = {metric: values[metric] for metric in (Metric.NIC_SEND_BYTES, Metric.HOST_CPU_BUSY)}
    assert the_finding(seen(only)).hosts == ["gpu-03"]
