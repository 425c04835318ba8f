"""Some schedules of `make chaos`. Every record is stored once or reported as lost, whatever part fails."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.record.clocks.interface import measure_anchor
from tests.deadline import until
from tests.integration.chaos.forked import Part
from tests.integration.chaos.schedule import SECONDS, Scope, make_schedule
from tests.integration.chaos.server import DisturbedServer, disturbed_server
from tests.integration.chaos.trial import Ground, stand_trial
from tests.integration.chaos.wall_clock import WallClock, follow

ON_THE_SERVER = (5, pytest.param(16, marks=pytest.mark.long))
WITH_TWO_COLLECTORS = (10,)
EMBEDDED = tuple(pytest.param(seed, marks=pytest.mark.long) for seed in (9, 17))
DISKS = os.geteuid() == 0
SCOPE = Scope(processes=("collector", "agent", "rank-0", "server"), links=("front", "back"), disks=("spool",),
              clocks=("host", "collectors"))  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[DisturbedServer]:
    with disturbed_server(disks=DISKS) as running:
        yield running


def assert_exact(seed: int, ground: Ground) -> None:
    seen = stand_trial(seed, ground)
    assert not seen.account.faults, f"{seen.schedule}: {seen.account.faults}"
    assert seen.account.stored > 1000


@pytest.mark.chaos
@pytest.mark.clickhouse
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", ON_THE_SERVER)
def test_every_record_is_stored_once_or_reported_lost_on_a_server(seed: int, server: DisturbedServer) -> None:
    assert_exact(seed, Ground(server=server, disks=DISKS))


@pytest.mark.chaos
@pytest.mark.clickhouse
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", WITH_TWO_COLLECTORS)
@pytest.mark.long
def test_every_record_is_stored_once_or_reported_lost_with_two_collectors(seed: int, server: DisturbedServer) -> None:
    assert_exact(seed, Ground(server=server, num_collectors=2, disks=DISKS))


@pytest.mark.chaos
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", EMBEDDED)
def test_every_record_is_stored_once_or_reported_lost_in_an_embedded_store(seed: int) -> None:
    assert_exact(seed, Ground(disks=DISKS))


def test_schedule_is_determined_by_its_seed_and_differs_between_seeds() -> None:
    assert make_schedule(3, SCOPE) == make_schedule(3, SCOPE)
    assert len({make_schedule(seed, SCOPE).disturbances for seed in range(100)}) == 100


def test_schedules_contain_every_part_and_every_kind_of_disturbance() -> None:
    ahead = [one for seed in range(200) for one in make_schedule(seed, SCOPE).disturbances]
    assert {one.part for one in ahead} == {*SCOPE.processes, *SCOPE.links, *SCOPE.disks, *SCOPE.clocks}
    assert {one.kind for one in ahead} == {"kill", "pause", "cut", "halve", "slow", "fill", "move", "jump"}
    assert all(0 <= one.at_s <= SECONDS for one in ahead)


def print_clock_offsets(clock: Path) -> None:
    """A role: print by how many seconds the wall clock of this process is ahead of the machine's."""
    follow(clock)
    ahead_ns = (measure_anchor().wall_ns, time.time_ns(), round(time.time() * 1e9))
    print([round((one - time.clock_gettime_ns(time.CLOCK_REALTIME)) / 1e9) for one in ahead_ns])


def test_process_of_a_trial_uses_the_wall_clock_of_the_trial(tmp_path: Path) -> None:
    clock, part = WallClock(tmp_path / "clock"), Part("clock", print_clock_offsets, tmp_path / "log")
    part.arguments = (clock.path,)
    for seconds in (0, -3600):
        clock.set_off(seconds)
        part.start()
        until(lambda: not part.running, what="the end")
    assert part.said().splitlines() == ["[0, 0, 0]", "[-3600, -3600, -3600]"]
