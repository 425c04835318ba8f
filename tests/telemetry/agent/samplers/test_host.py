"""The host sampler on file trees like those of real kernels, and on this machine."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from telemetry.agent.samplers.host import HostSampler
from telemetry.agent.samplers.interface import GoneError, Sampler
from telemetry.host_metrics import Happening, Metric
from tests.deadline import until
from tests.telemetry.agent.samplers.made_proc import KERNELS, PAGE_BYTES, TICK_NS, Kernel, MadeHost, MadeProcess
from tests.telemetry.agent.samplers.sampled_host import BEGAN_NS, RANK_PID, SECOND_NS, Sampled, told, values


@pytest.mark.parametrize("kernel", KERNELS)
def test_host_metrics_are_read_from_the_files_of_every_kernel(tmp_path: Path, kernel: Kernel) -> None:
    one = Sampled(MadeHost(root=tmp_path, kernel=kernel, running=4, swapped_pages=(3, 4)))
    one.sample()
    one.host.pass_time(used=0.25)
    sample = one.sample()
    host = values(sample)
    assert host[Metric.HOST_CPU_BUSY] == pytest.approx(0.25)
    assert host[Metric.HOST_RUN_QUEUE] == 4
    assert host[Metric.HOST_MEMORY_AVAILABLE_BYTES] == 20_000_000 * 1024
    assert host[Metric.HOST_MEMORY_TOTAL_BYTES] == 32_000_000 * 1024
    assert host[Metric.HOST_SWAP_IN_BYTES] == 3 * PAGE_BYTES
    assert host[Metric.HOST_SWAP_OUT_BYTES] == 4 * PAGE_BYTES
    assert (host[Metric.HOST_PAGE_FAULTS], host[Metric.HOST_MAJOR_FAULTS]) == (90, 7)
    assert values(sample, "core1") == {Metric.HOST_CPU_BUSY: pytest.approx(0.25)}
    for disk in ("sda", "nvme0n1"):
        assert values(sample, disk) == {
            Metric.HOST_DISK_READ_BYTES: 100 * 512,
            Metric.HOST_DISK_WRITE_BYTES: 200 * 512,
            Metric.HOST_DISK_BUSY_NS: 300_000_000,
        }
    assert (Metric.RANK_RUN_DELAY_NS in values(sample, "rank5")) == (kernel != "rhel5")
    assert (Metric.HOST_PRESSURE_IO_NS in host) == (kernel == "current")
    devices = {reading.device for reading in sample.readings}
    assert devices == {"", "core0", "core1", "sda", "nvme0n1", "rank5"}
    one.sampler.close()


def test_metrics_of_a_rank_process_are_read(sampled: Sampled) -> None:
    rank = sampled.rank
    rank.cpu_ticks, rank.core, rank.run_delay_ns, rank.major_faults = 150, 1, 12_345, 6
    assert values(sampled.sample(), "rank5") == {
        Metric.RANK_CPU_NS: 150 * TICK_NS,
        Metric.RANK_PAGE_FAULTS: 15,
        Metric.RANK_MAJOR_FAULTS: 6,
        Metric.RANK_RESIDENT_BYTES: 100 * PAGE_BYTES,
        Metric.RANK_THREADS: 7,
        Metric.RANK_CORE: 1,
        Metric.RANK_VOLUNTARY_SWITCHES: 10,
        Metric.RANK_INVOLUNTARY_SWITCHES: 2,
        Metric.RANK_RUN_DELAY_NS: 12_345,
    }


def test_metrics_that_only_grow_are_marked_as_counters(sampled: Sampled) -> None:
    sampled.sample()
    sampled.host.pass_time()
    counters = {reading.metric for reading in sampled.sample().readings if reading.is_counter}
    assert {Metric.RANK_CPU_NS, Metric.RANK_RUN_DELAY_NS, Metric.HOST_PRESSURE_CPU_NS} <= counters
    assert not counters & {Metric.HOST_CPU_BUSY, Metric.HOST_RUN_QUEUE, Metric.RANK_RESIDENT_BYTES, Metric.RANK_CORE}


def test_pressure_is_reported_in_nanoseconds(sampled: Sampled) -> None:
    sampled.host.pressure_us.update(cpu=1, memory=2, io=3)
    host = values(sampled.sample())
    assert [host[metric] for metric in Metric if metric.startswith("host-pressure")] == [1000, 2000, 3000]


def test_stolen_cpu_time_is_not_reported_as_busy_time(sampled: Sampled) -> None:
    sampled.sample()
    sampled.host.pass_time(used=0.5, stolen=0.3)
    host = values(sampled.sample())
    assert host[Metric.HOST_CPU_BUSY] == pytest.approx(0.5)
    assert host[Metric.HOST_CPU_STEAL] == pytest.approx(0.3)


def test_single_cores_are_reported_only_in_some_samples_when_there_are_many_cores(tmp_path: Path) -> None:
    one = Sampled(MadeHost(root=tmp_path, cores=[[0] * 10 for _ in range(64)]))
    shares: list[dict[str, float]] = []
    for sample in range(9):
        one.host.pass_time(used=0.5 if sample < 5 else 1.0)
        shares.append(values(one.sample(), "core63"))
    assert [bool(share) for share in shares] == [False] * 4 + [True] + [False] * 3 + [True]
    assert shares[8][Metric.HOST_CPU_BUSY] == pytest.approx(1.0)
    one.sampler.close()


def test_disk_busy_time_continues_to_grow_after_a_wrap(sampled: Sampled) -> None:
    sampled.host.disk = (100, 200, 2**32 - 100)
    before = values(sampled.sample(), "sda")[Metric.HOST_DISK_BUSY_NS]
    sampled.host.disk = (100, 200, 400)
    after = values(sampled.sample(), "sda")[Metric.HOST_DISK_BUSY_NS]
    assert after - before == 500 * 1_000_000


@pytest.mark.parametrize("garbage", ["", "cpu\ncpu0 a b c d\nprocs_running many\n", "\x00\xff" * 300, "cpu 1 2 3\n"])
def test_garbage_in_proc_files_only_leaves_readings_out_until_the_next_sample(sampled: Sampled, garbage: str) -> None:
    sampled.sample()
    sampled.host.pass_time()
    sampled.host.write()
    for name in ("stat", "meminfo", "vmstat", "diskstats", "pressure/memory", f"{RANK_PID}/stat"):
        (sampled.host.proc / name).write_text(garbage)
    sample = sampled.sampler.sample(BEGAN_NS + 5 * SECOND_NS)
    assert {reading.metric for reading in sample.readings} <= {Metric.HOST_PRESSURE_CPU_NS, Metric.HOST_PRESSURE_IO_NS}
    assert values(sampled.sample(10))[Metric.HOST_RUN_QUEUE] == 1


def test_rank_without_a_process_is_left_out(sampled: Sampled) -> None:
    sampled.pids = {5: RANK_PID, 6: 999}
    assert {reading.device for reading in sampled.sample().readings if "rank" in reading.device} == {"rank5"}


def test_another_process_with_the_pid_of_a_rank_is_not_read_as_the_rank(sampled: Sampled) -> None:
    sampled.sample()
    sampled.rank.started = 2000
    assert values(sampled.sample(), "rank5") == {}


def test_rank_with_a_new_pid_is_read_from_its_new_process(sampled: Sampled) -> None:
    sampled.sample()
    sampled.host.processes.append(MadeProcess(pid=600, num_threads=3))
    sampled.pids = {5: 600}
    assert values(sampled.sample(), "rank5")[Metric.RANK_THREADS] == 3


def test_host_sampler_raises_gone_error_when_proc_is_missing(tmp_path: Path) -> None:
    with pytest.raises(GoneError):
        HostSampler(proc=tmp_path / "proc", ranks=dict)


def test_stop_and_continuation_of_a_rank_are_each_reported_once(sampled: Sampled) -> None:
    samples = []
    for state in "RTTTS":
        sampled.rank.state = state
        samples.append(sampled.sample())
    assert [[event.name for event in sample.events] for sample in samples] == [
        [],
        [Happening.RANK_STOPPED],
        [],
        [],
        [Happening.RANK_CONTINUED],
    ]
    assert samples[1].events[0].device == "rank5"


def test_rank_that_ran_between_two_stopped_samples_is_reported_continued_and_stopped_again(sampled: Sampled) -> None:
    sampled.rank.state = "T"
    sampled.sample()
    sampled.rank.switches = (11, 2)
    assert [event.name for event in sampled.sample().events] == [Happening.RANK_CONTINUED, Happening.RANK_STOPPED]


@pytest.mark.parametrize(
    ("membership", "folder", "words"),
    [
        ("0::/pod/box", "pod/box", "usage_usec 7\nnr_periods 9\nnr_throttled 3\nthrottled_usec 42\n"),
        ("4:cpu,cpuacct:/pod/box\n0::/", "cpu,cpuacct/pod/box", "nr_periods 9\nthrottled_time 42000\n"),
        ("4:memory:/other\n2:cpu:/pod/box", "cpu/pod/box", "nr_periods 9\nthrottled_time 42000\n"),
        ("2:cpu:/of/the/host", "cpu", "nr_periods 9\nthrottled_time 42000\n"),
    ],
    ids=["version 2", "version 1", "version 1, alone", "inside the container"],
)
def test_time_that_a_cgroup_quota_throttled_a_rank_is_read(
    sampled: Sampled, membership: str, folder: str, words: str
) -> None:
    (sampled.host.cgroups / folder).mkdir(parents=True)
    (sampled.host.cgroups / folder / "cpu.stat").write_text(words)
    sampled.rank.cgroup = membership
    assert values(sampled.sample(), "rank5")[Metric.RANK_THROTTLED_NS] == 42_000


def test_throttling_by_the_parent_cgroup_is_added(sampled: Sampled) -> None:
    for folder in ("pod/box", "pod"):
        (sampled.host.cgroups / folder).mkdir(parents=True, exist_ok=True)
        (sampled.host.cgroups / folder / "cpu.stat").write_text("nr_throttled 1\nthrottled_usec 5\n")
    sampled.rank.cgroup = "0::/pod/box"
    assert values(sampled.sample(), "rank5")[Metric.RANK_THROTTLED_NS] == 10_000


def test_new_oom_kills_are_reported_with_their_number(sampled: Sampled) -> None:
    sampled.host.oom_kills = 3
    assert told(sampled.sample(), Happening.OOM_KILL) == []
    sampled.host.oom_kills = 5
    assert told(sampled.sample(), Happening.OOM_KILL) == [("", "2")]
    assert told(sampled.sample(), Happening.OOM_KILL) == []


def test_old_oom_kills_are_not_reported_after_a_sample_that_failed_to_read_their_number(sampled: Sampled) -> None:
    sampled.host.oom_kills = 3
    sampled.sample()
    (sampled.host.proc / "vmstat").write_text("")
    assert told(sampled.sampler.sample(BEGAN_NS + 5 * SECOND_NS), Happening.OOM_KILL) == []
    assert told(sampled.sample(10), Happening.OOM_KILL) == []
    sampled.host.oom_kills = 4
    assert told(sampled.sample(), Happening.OOM_KILL) == [("", "1")]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def real_sampler(child: subprocess.Popen[bytes]) -> Iterator[Sampler]:
    sampler = HostSampler(ranks=lambda: {3: child.pid})
    yield sampler
    sampler.close()


def test_host_and_rank_metrics_of_this_machine_are_read(real_sampler: Sampler) -> None:
    first = real_sampler.sample(time.time_ns())
    until(lambda: Metric.HOST_CPU_BUSY in values(real_sampler.sample(time.time_ns())), what="a share of processor time")
    host, rank = values(first), values(first, "rank3")
    assert 0 < host[Metric.HOST_MEMORY_AVAILABLE_BYTES] < host[Metric.HOST_MEMORY_TOTAL_BYTES]
    assert host[Metric.HOST_RUN_QUEUE] >= 1
    assert rank[Metric.RANK_THREADS] == 1
    assert 0 <= rank[Metric.RANK_CORE] < (os.cpu_count() or 1)


def test_real_process_is_reported_stopped_and_continued_and_left_out_after_its_end(
    real_sampler: Sampler, child: subprocess.Popen[bytes]
) -> None:
    def seen(name: Happening) -> bool:
        return bool(told(real_sampler.sample(time.time_ns()), name))

    child.send_signal(signal.SIGSTOP)
    until(lambda: seen(Happening.RANK_STOPPED), what="the stop")
    child.send_signal(signal.SIGCONT)
    until(lambda: seen(Happening.RANK_CONTINUED), what="its end")
    child.kill()
    child.wait()
    sample = real_sampler.sample(time.time_ns())
    assert values(sample, "rank3") == {}
    assert values(sample)
