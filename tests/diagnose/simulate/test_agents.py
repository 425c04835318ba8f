"""What host agents of simulated runs report: only the NIC and the GPU that fail, at the time of the failure."""

from dataclasses import replace

import numpy as np
import pytest

from diagnose.model.fleet import NO_FLEET, Fleet
from diagnose.model.gpus import gpu_of_ranks, growth_in_steps, series_of_ranks
from diagnose.model.outage_effect import effect_of
from diagnose.model.outages import find_outages
from diagnose.pipeline import diagnose_view
from diagnose.simulate.agents import FULL_MHZ, MOST_ROWS, held_down_share
from diagnose.simulate.run import Simulation, simulate, view
from diagnose.simulate.truth import parse_fault
from telemetry.host_metrics import Happening, Metric
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.simulate.made_plans import plan
from tests.each_case import each_case

GRID = Topology(dp=8, pp=2, tp=2)
OFF = {"clock_offset_ms": 10.0, "clock_drift_ppm": 50.0}


def num_rows(fleet: Fleet) -> int:
    return len(fleet.events) + sum(len(one.at_ns) for series in fleet.series.values() for one in series)


def found(made: Simulation) -> list[tuple[str, tuple[int, ...]]]:
    return [(one.kind.value, tuple(one.ranks)) for one in diagnose_view(view(made)).findings]


@each_case("faults", [(), ("slow:rank=5,factor=1.4",), ("link:host=gpu-001,factor=3", "gc")])
def test_host_agents_report_nothing_when_no_nic_and_no_gpu_fails(faults: tuple[str, ...]) -> None:
    assert simulate(plan(*faults)).fleet == NO_FLEET


def test_same_seed_makes_the_same_agent_rows() -> None:
    faults = ("flap:rank=3", "throttle:host=gpu-001,factor=1.3")
    one, again, other = (simulate(plan(*faults, seed=seed)).fleet for seed in (3, 3, 4))
    assert one.events == again.events != other.events
    for metric, series in one.series.items():
        for left, right in zip(series, again.of(metric), strict=True):
            assert np.array_equal(left.at_ns, right.at_ns)
            assert np.array_equal(left.value, right.value)


@pytest.mark.parametrize(
    ("fault", "topology", "device"),
    [
        ("flap:host=gpu-001,seconds=4,times=4", GRID, "eth0"),
        ("flap:rank=10,seconds=0.5,times=4", GRID, "mlx5_2/1"),
        ("flap:host=gpu-001,seconds=4,times=4", Topology(pp=4, tp=4), "eth0"),
        ("flap:host=gpu-000,seconds=4,times=4", Topology(pp=4, tp=4), "eth0"),
        ("flap:host=gpu-001,seconds=4,times=4", Topology(pp=3, tp=8), "eth0"),
    ],
    ids=["host", "rank", "tail of a pipeline", "head of a pipeline", "middle of a pipeline"],
)
@pytest.mark.parametrize("noise", ["recorded", "heavy"])
def test_link_outage_coincides_with_the_stalled_transfers_and_lasts_as_long(
    fault: str, topology: Topology, device: str, noise: str
) -> None:
    made = simulate(plan(fault, topology=topology, noise=noise, num_steps=30, **OFF))
    healthy = simulate(replace(made.plan, faults=()))
    outages = find_outages(made.fleet.events)
    assert [(one.host, one.device) for one in outages] == [(made.truth[0].hosts[0], device)] * 4
    effects = [effect_of(view(made), outage) for outage in outages]
    slow = np.flatnonzero(made.step_ns - healthy.step_ns > 0.2e9)
    assert [effect.steps for effect in effects] == [(row,) for row in slow.tolist()]
    for effect in effects:
        assert effect.hurt
        assert effect.held_s == pytest.approx(effect.outage.seconds(), rel=0.25)


@pytest.mark.parametrize("offset_ms", [0.0, 2000.0])
def test_link_outage_lies_within_the_collective_that_it_delays(offset_ms: float) -> None:
    made = simulate(plan("flap:rank=9,seconds=4,times=1", topology=GRID, clock_offset_ms=offset_ms))
    (outage,) = find_outages(made.fleet.events)
    reduction = made.operations[Stage.GRADS_REDUCE_SCATTER]
    (row,) = np.flatnonzero(reduction.duration_ns[:, 0, 9] > 2e9)
    assert reduction.start_ns[row, 0, 9] <= outage.down_ns < outage.up_ns < reduction.end_ns[row, 0, 9]
    assert reduction.end_ns[row, 0, 9] - outage.up_ns < 0.1e9
    alone = simulate(replace(made.plan, faults=())).operations[Stage.GRADS_REDUCE_SCATTER].duration_ns[row, 0]
    longer_ns = (reduction.duration_ns[row, 0] - alone)[9]
    assert longer_ns == pytest.approx(outage.up_ns - outage.down_ns, abs=2)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("fault", ["flap:host=gpu-002,seconds=4", "flap:rank=5,seconds=1,times=5"])
def test_diagnosis_names_the_ranks_of_the_flapping_nic(fault: str, seed: int) -> None:
    made = simulate(plan(fault, topology=GRID, num_steps=40, seed=seed))
    (truth,) = made.truth
    assert found(made) == [(truth.kind, truth.ranks)]


THROTTLED = (
    "throttle:rank=5,factor=1.4,period=60",
    "throttle:rank=30,factor=1.3,shape=ramp,reason=power",
    "throttle:host=gpu-002,factor=1.2,period=300,reason=brake",
)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", THROTTLED)
def test_diagnosis_names_the_ranks_of_the_throttled_gpu(fault: str, seed: int) -> None:
    made = simulate(plan(fault, topology=GRID, num_steps=60, seed=seed))
    (truth,) = made.truth
    assert found(made) == [(truth.kind, truth.ranks)]


def test_throttle_counter_grows_only_in_slow_steps_and_by_the_matching_share() -> None:
    """40 slow steps, then 40 healthy ones. Samples come every five seconds, so steps near the border are skipped."""
    made = simulate(plan("throttle:rank=5,factor=1.4,period=80", topology=GRID, num_steps=80, noise="none", **OFF))
    seen = view(made)
    gpus = gpu_of_ranks(seen)
    share = growth_in_steps(seen, series_of_ranks(seen, Metric.GPU_THROTTLE_SOFTWARE_THERMAL_NS, gpus))
    share /= seen.step_ns[:, None]
    told = held_down_share(np.array([1.4]))
    assert 0.5 < told < 1.0
    np.testing.assert_allclose(share[6:33, 5], told[0], atol=1e-3)
    assert (share[47:, 5] == 0).all()
    assert (np.delete(share, 5, axis=1) == 0).all()
    assert np.isfinite(share).all()
    power = growth_in_steps(seen, series_of_ranks(seen, Metric.GPU_THROTTLE_POWER_NS, gpus)) / seen.step_ns[:, None]
    assert ((power > 0) & (power < 0.06)).all()


def test_throttled_gpu_reports_a_clock_reduced_by_its_factor_and_a_higher_temperature() -> None:
    made = simulate(plan("throttle:rank=5,factor=1.5,period=200", topology=GRID, num_steps=40))
    clocks = {(one.host, one.device): one for one in made.fleet.of(Metric.GPU_SM_CLOCK_MHZ)}
    own, peer = clocks["gpu-000", "gpu5"], clocks["gpu-001", "gpu5"]
    assert own.mean.min() == pytest.approx(FULL_MHZ / 1.5)
    assert peer.mean.min() == pytest.approx(FULL_MHZ)
    heat = {(one.host, one.device): one.mean.max() for one in made.fleet.of(Metric.GPU_TEMPERATURE_C)}
    assert heat["gpu-000", "gpu5"] > heat["gpu-001", "gpu5"]


def test_every_reporting_gpu_has_a_seen_event_with_its_own_uuid() -> None:
    made = simulate(plan("throttle:host=gpu-001,factor=1.3")).fleet
    seen = made.named(Happening.GPU_SEEN)
    telling = {(one.host, one.device) for one in made.of(Metric.GPU_THROTTLE_POWER_NS)}
    assert {(event.host, event.device) for event in seen} == telling
    assert len({event.text for event in seen}) == len(seen) == 16


def test_only_hosts_of_the_same_pipeline_half_report_in_a_large_run_with_a_throttled_gpu() -> None:
    """256 hosts, two for each replica: one for the first and one for the second half of its pipeline."""
    topology = Topology(dp=128, pp=4, tp=4)
    made = simulate(plan("throttle:rank=1000,factor=1.4", topology=topology, num_microbatches=4, num_steps=60))
    telling = {one.host for one in made.fleet.of(Metric.GPU_SM_CLOCK_MHZ)}
    assert num_rows(made.fleet) <= MOST_ROWS
    assert 4 <= len(telling) < 256
    assert made.plan.hosts[1000] in telling
    place = topology.place(1000).pp
    assert {topology.place(made.plan.hosts.index(host)).pp // 2 for host in telling} == {place // 2}


def test_flaps_and_throttling_of_one_run_are_both_reported() -> None:
    made = simulate(plan("flap:host=gpu-000", "throttle:rank=9,factor=1.4", num_steps=20))
    assert {event.name for event in made.fleet.events} == {"link-down", "link-up", "gpu-seen"}
    assert parse_fault(made.truth[1].fault) == made.plan.faults[1]
