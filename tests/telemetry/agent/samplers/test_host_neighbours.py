"""Other processes that take cores or memory from a rank, on a made host."""

import os
from pathlib import Path

import pytest

from telemetry.agent.samplers.interface import Event
from telemetry.host_metrics import Happening
from tests.telemetry.agent.samplers.made_proc import PAGE_BYTES, Kernel, MadeHost, MadeProcess
from tests.telemetry.agent.samplers.sampled_host import RANK_PID, SECOND_NS, Sampled, told


class Neighbour:
    """A process that spins on core 1 beside rank 5, which waits for that core."""

    def __init__(self, sampled: Sampled, **process: object) -> None:
        self.process = MadeProcess(pid=900, name="stress-ng (cpu)", core=1, **process)  # type: ignore[arg-type]
        self._sampled = sampled
        sampled.host.processes.append(self.process)

    def burn(self, samples: int, *, share: float = 0.9, waits: float = 0.9) -> list[Event]:
        """Use the core during the given number of samples, one second apart. Return their events."""
        events: list[Event] = []
        for _ in range(samples):
            self.process.cpu_ticks += round(share * 100)
            self._sampled.rank.run_delay_ns += round(waits * SECOND_NS)
            events += self._sampled.sample().events
        return events


def test_busy_process_is_reported_every_ten_seconds_while_a_rank_waits_for_its_core(sampled: Sampled) -> None:
    sampled.sample()
    first, *others = Neighbour(sampled).burn(samples=40)
    assert (first.name, first.device, first.text) == (Happening.BUSY_PROCESS, "core1", "900 stress-ng (cpu) 0.90")
    assert [event.text for event in others] == [first.text] * 3
    assert [(event.at_ns - first.at_ns) // SECOND_NS for event in others] == [10, 20, 30]


def test_busy_process_is_not_reported_when_no_rank_waits(sampled: Sampled) -> None:
    sampled.sample()
    assert Neighbour(sampled).burn(samples=20, waits=0.05) == []


def test_process_that_uses_several_cores_is_reported_without_a_core(sampled: Sampled) -> None:
    sampled.sample()
    events = Neighbour(sampled, num_threads=4).burn(samples=5, share=3.0)
    assert [(event.device, event.text) for event in events] == [("", "900 stress-ng (cpu) 3.00")]


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_process_with_little_cpu_time_is_not_reported(sampled: Sampled, share: float) -> None:
    sampled.sample()
    assert Neighbour(sampled).burn(samples=20, share=share) == []


def test_descendants_of_a_rank_or_of_the_agent_are_not_reported(sampled: Sampled) -> None:
    sampled.host.processes.append(MadeProcess(pid=700, parent=RANK_PID))
    sampled.sample()
    for parent in (700, os.getpid()):
        assert Neighbour(sampled, parent=parent).burn(samples=20) == []


def test_small_processes_with_the_same_name_on_one_core_are_reported_together(sampled: Sampled) -> None:
    crowd = [MadeProcess(pid=800 + number, name="burner", core=1) for number in range(6)]
    sampled.host.processes += crowd
    sampled.sample()
    neighbour = Neighbour(sampled)
    events = []
    for _ in range(5):
        for number, process in enumerate(crowd):
            process.cpu_ticks += 14 + number
        events += neighbour.burn(samples=1, share=0.0)
    assert [(event.device, event.text) for event in events] == [("core1", "805 burner 0.99")]


def test_busy_process_is_reported_when_the_run_queue_or_pressure_shows_waiting(sampled: Sampled) -> None:
    sampled.sample()
    neighbour = Neighbour(sampled)
    sampled.host.running = 8
    assert neighbour.burn(samples=5, waits=0.0)
    sampled.host.running = 1
    neighbour.burn(samples=20, waits=0.0)
    assert neighbour.burn(samples=20, waits=0.0) == []
    events = []
    for _ in range(5):
        sampled.host.pressure_us["cpu"] += 200_000
        events += neighbour.burn(samples=1, waits=0.0)
    assert [event.name for event in events] == [Happening.BUSY_PROCESS]


def test_memory_shortage_event_names_the_largest_process_that_is_not_a_rank(sampled: Sampled) -> None:
    sampled.rank.resident_pages = 10**6
    sampled.host.processes += [MadeProcess(pid=901, name="redis", resident_pages=2000), MadeProcess(pid=902)]
    sampled.sample()
    sampled.host.pressure_us["memory"] += 300_000
    assert told(sampled.sample(), Happening.MEMORY_SHORT) == [("", f"901 redis {2000 * PAGE_BYTES}")]


@pytest.mark.parametrize("kernel", ["rhel5", "current"])
def test_swapping_or_low_available_memory_is_reported_as_memory_shortage(tmp_path: Path, kernel: Kernel) -> None:
    one = Sampled(MadeHost(root=tmp_path, kernel=kernel))
    one.sample()
    one.host.swapped_pages = (0, 1000)
    assert len(told(one.sample(), Happening.MEMORY_SHORT)) == 1
    assert told(one.sample(20), Happening.MEMORY_SHORT) == []
    one.host.available_kib = 100_000
    assert len(told(one.sample(20), Happening.MEMORY_SHORT)) == 1
    one.sampler.close()
