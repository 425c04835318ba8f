"""Estimated clock offsets and bounds, compared with the known offsets of simulated clocks."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from telemetry.clocks.align import align
from telemetry.clocks.align_evidence import DISPUTED, ENDS, ORDER, PINGS, Evidence, HostClock
from tests.telemetry.clocks.made_clocks import MICRO, MILLI, SECOND, Jump, World

ALL_HOSTS = (0, 1, 2, 3)
Made = Callable[[World], Evidence]


def estimates(made: Made, *, seeds: int, jump: Jump | None = None) -> Iterator[tuple[World, HostClock]]:
    """Estimated windows of all hosts except the reference, over many simulated worlds."""
    for seed in range(seeds):
        world = World(seed, len(ALL_HOSTS), jump=jump)
        for clock in align(world.evidence(*made(world))):
            if clock.host != clock.reference:
                yield world, clock


def fraction_within_bound(found: list[tuple[World, HostClock]]) -> float:
    """Fraction of the windows whose true offset lies within the bound."""
    return float(np.mean([world.error_ns(clock) <= clock.bound_ns for world, clock in found]))


@pytest.mark.parametrize(
    ("count", "jitter_us", "tail", "bound_us"),
    [
        pytest.param(400, 30, 0.05, 120, id="frequent"),
        pytest.param(64, 30, 0.05, 200, id="one a second"),
        pytest.param(64, 1, 0.05, 20, id="as exact as kernels"),
        pytest.param(64, 30, 0.3, 1000, id="a third far off"),
        pytest.param(12, 30, 0.05, 2000, id="rare"),
        pytest.param(64, 2000, 0.05, 12_000, id="as gloo scatters"),
    ],
)
@pytest.mark.parametrize("seeds", [20, pytest.param(200, marks=pytest.mark.long)])
def test_the_true_offset_lies_within_the_bound(
    seeds: int, count: int, jitter_us: float, tail: float, bound_us: float
) -> None:
    """Clocks up to five seconds and 50 ppm off; three windows for each seed."""

    def made(world: World) -> list:
        return [world.gathering(ALL_HOSTS, count, jitter_ns=jitter_us * MICRO, tail=tail)]

    found = list(estimates(made, seeds=seeds))
    assert len(found) == 3 * seeds
    assert fraction_within_bound(found) >= 0.99
    assert np.percentile([clock.bound_ns for _, clock in found], 95) < bound_us * MICRO


def test_clock_drift_is_estimated_to_within_3_ppm() -> None:
    for world, clock in estimates(lambda world: [world.gathering(ALL_HOSTS, 64)], seeds=20):
        drift = world.drift[world.hosts.index(clock.host)] - world.drift[0]
        assert abs(clock.drift_ppm - drift * 1e6) < 3


def test_true_offset_lies_within_the_bound_when_one_host_is_always_late() -> None:
    """The scatter is asymmetric: ends on one host are late by an exponentially distributed time."""
    late = np.array([20.0, 20.0, 20.0, 400.0]) * MICRO
    found = list(estimates(lambda world: [world.gathering(ALL_HOSTS, 64, jitter_ns=MICRO, late_ns=late)], seeds=30))
    assert fraction_within_bound(found) >= 0.99


@pytest.mark.parametrize("by_ns", [-2 * SECOND, 128 * MILLI, 2 * MILLI])
@pytest.mark.parametrize("seeds", [4, pytest.param(10, marks=pytest.mark.long)])
def test_clock_step_starts_a_new_window(seeds: int, by_ns: float) -> None:
    jump = Jump(host=2, at_ns=25 * SECOND, by_ns=by_ns)
    found = list(estimates(lambda world: [world.gathering(ALL_HOSTS, 64)], seeds=seeds, jump=jump))
    assert fraction_within_bound(found) >= 0.99
    for seed in range(seeds):
        windows = [clock for world, clock in found[seed * 4 : seed * 4 + 4] if clock.host == "host-2"]
        assert len(windows) == 2
        step_ns = windows[1].offset_ns - windows[0].offset_ns
        assert abs(step_ns - by_ns) < 5 * MILLI


@pytest.mark.parametrize("at_s", [1.0, 59.0])
def test_clock_step_near_the_start_or_end_of_a_run_does_not_widen_the_bound(at_s: float) -> None:
    jump = Jump(host=2, at_ns=at_s * SECOND, by_ns=128 * MILLI)
    found = list(estimates(lambda world: [world.gathering(ALL_HOSTS, 64)], seeds=10, jump=jump))
    assert fraction_within_bound(found) >= 0.99
    assert max(clock.bound_ns for _, clock in found) < MILLI


def test_host_without_common_events_is_not_aligned() -> None:
    world = World(1, 4)
    clocks = align(world.evidence(world.gathering((0, 1), 64), world.gathering((2, 3), 64)))
    by_host = {clock.host: clock for clock in clocks}
    assert [by_host[host].aligned for host in world.hosts] == [True, True, False, False]
    assert "shared with" in by_host["host-2"].reason


def test_messages_in_one_direction_do_not_bound_the_offset() -> None:
    world = World(1, 2)
    (_, clock) = align(world.evidence(world.transfers(0, 1, 64)))
    assert not clock.aligned
    assert "do not limit the clock offset of this host" in clock.reason


def test_reference_and_its_only_neighbour_have_the_same_number_of_events() -> None:
    world = World(1, 2)
    sent, received = world.transfers(0, 1, 64), world.transfers(1, 0, 64)
    reference, neighbour = align(world.evidence(sent, received))
    assert reference.num_events == neighbour.num_events == len(sent.sent_ns) + len(received.sent_ns)
    assert reference.last_ns == max(sent.sent_ns.max(), received.received_ns.max())


def test_messages_in_both_directions_always_bound_the_true_offset() -> None:
    def made(world: World) -> list:
        return [world.transfers(a, b, 64) for a, b in ((0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2))]

    found = list(estimates(made, seeds=20))
    assert fraction_within_bound(found) == 1.0
    assert {clock.method for _, clock in found} == {ORDER}
    assert np.median([clock.bound_ns for _, clock in found]) < 2 * MILLI


def test_offset_is_estimated_along_the_path_of_hosts_with_the_tightest_bounds() -> None:
    """Host 3 shares only messages with host 0, but collectives with host 1. The path through host 1 is tighter."""
    world = World(5, 4)
    sources = [world.gathering((0, 1, 2), 64), world.gathering((1, 3), 64)]
    sources += [world.transfers(0, 3, 64), world.transfers(3, 0, 64)]
    clock = align(world.evidence(*sources))[3]
    assert clock.method == ENDS
    assert world.error_ns(clock) <= clock.bound_ns < 500 * MICRO


@pytest.mark.parametrize("back_us", [300, 3000])
def test_pings_alone_bound_the_true_offset_when_delays_are_asymmetric(back_us: float) -> None:
    found = list(estimates(lambda world: [world.pings(host, back_ns=back_us * MICRO) for host in ALL_HOSTS], seeds=25))
    assert fraction_within_bound(found) == 1.0
    assert {clock.method for _, clock in found} == {PINGS}


def test_host_with_wrong_timestamps_does_not_affect_other_hosts() -> None:
    """The end times of host 1 are wrong by up to one second. Estimates of the other hosts do not use them."""
    for seed in range(10):
        world = World(seed, 4)
        gathering = world.gathering(ALL_HOSTS, 64)
        lies = gathering.end_ns.copy()
        lies[:, 1] += world.random.integers(0, 10**9, 64)
        clocks = align(world.evidence(replace(gathering, end_ns=lies)))
        for clock in clocks[2:]:
            assert world.error_ns(clock) <= clock.bound_ns < MILLI
        assert not clocks[1].aligned or world.error_ns(clocks[1]) <= clocks[1].bound_ns


def test_end_times_that_contradict_the_order_of_events_are_ignored() -> None:
    """One host stamps all ends 50 ms late, but collectives take 2 ms. A wait of 50 ms is impossible."""
    world = World(3, 3)
    gathering = world.gathering((0, 1, 2), 64, lasts_ns=2 * MILLI)
    two_way = [world.transfers(0, 1, 64), world.transfers(1, 0, 64)]
    late = gathering.end_ns + np.array([0, 50_000_000, 0])
    clock = align(world.evidence(replace(gathering, end_ns=late), *two_way))[1]
    assert clock.method != ENDS
    assert not clock.aligned or world.error_ns(clock) <= clock.bound_ns


def test_bound_is_widened_to_include_a_different_offset_from_pings() -> None:
    """The wall clock was set after the ranks started: their timestamps use the old clock, pings the new one."""
    world = World(3, 2)
    pings = world.pings(1)
    moved = replace(pings, offset_ns=pings.offset_ns - 128_000_000)
    clock = align(world.evidence(world.gathering((0, 1), 64), world.pings(0), moved))[1]
    assert clock.method == DISPUTED
    assert 127 * MILLI < clock.bound_ns < 135 * MILLI
    assert "128" in clock.reason or "12" in clock.reason


def test_another_host_is_the_reference_when_the_first_host_shares_no_events() -> None:
    world = World(1, 4)
    clocks = align(world.evidence(world.gathering((1, 2, 3), 64)))
    assert {clock.reference for clock in clocks} == {"host-1"}
    assert [clock.aligned for clock in clocks] == [False, True, True, True]


@pytest.mark.parametrize("count", [*range(1, 9), 11])
@pytest.mark.parametrize("seeds", [40, pytest.param(400, marks=pytest.mark.long)])
def test_few_events_give_no_estimate_or_one_whose_bound_holds_the_true_offset(seeds: int, count: int) -> None:
    """Below eight events, only their order is used. From eight on, their scatter is used with a margin."""
    found = [
        (world, clock)
        for world, clock in estimates(
            lambda world: [world.gathering(ALL_HOSTS, count)], seeds=seeds if count > 7 else seeds // 10
        )
        if clock.aligned
    ]
    assert not found or fraction_within_bound(found) >= 0.995
    assert count <= 7 or len(found) >= 0.98 * 3 * seeds


def test_align_accepts_no_hosts_and_a_single_host_without_evidence() -> None:
    assert align(Evidence(hosts=())) == []
    (clock,) = align(Evidence(hosts=("alone",)))
    assert clock.aligned
    assert clock.bound_ns == 0
