"""Samples of hosts name the cause and confirm weak evidence in spans. Alone, they give no finding."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from diagnose.detectors.host_contention import detect_host_contention
from diagnose.detectors.host_series import Measures, Period
from diagnose.detectors.host_witness import Cause, Witness
from diagnose.findings import Finding
from diagnose.model.fleet import HostEvent
from diagnose.model.view import RunView
from telemetry.host_metrics import Happening, Metric
from telemetry.topology import Topology
from tests.diagnose.detectors.test_host_contention import contended_view
from tests.diagnose.made_fleet import (
    BEGAN_NS,
    SECOND_NS,
    MadeSeries,
    looks_over,
    made_event,
    made_fleet,
    made_series,
    timed,
)
from tests.diagnose.over_seeds import over_seeds
from tests.each_case import each_case

GRID = Topology(dp=8, pp=2, tp=2)
"""Four hosts of eight ranks."""
SLOW = 9
"""On the second host."""
MEMORY_BYTES = 64e9


@dataclass(slots=True, kw_only=True)
class HostLoad:
    """Load on the hosts of a view, as shares of time or rates. Ranks and hosts without a value have a small load."""

    run_delay: dict[int, float] = field(default_factory=dict)
    throttled: dict[int, float] = field(default_factory=dict)
    faults_a_second: dict[int, float] = field(default_factory=dict)
    memory_pressure: dict[str, float] = field(default_factory=dict)
    steal: dict[str, float] = field(default_factory=dict)
    usual: float = 0.02
    """Load of all ranks."""
    every_ns: int = SECOND_NS
    seed: int = 0

    def added_to(self, view: RunView, *events: HostEvent) -> RunView:
        """The view on the wall clock, with samples of its hosts."""
        view = timed(view)
        at_ns = looks_over(view, every_ns=self.every_ns, before_ns=20 * SECOND_NS)
        random = np.random.default_rng(self.seed)
        parts: list[MadeSeries] = []
        for rank, host in enumerate(view.hosts):
            device = f"rank{rank}"
            for metric, shares, usual in (
                (Metric.RANK_RUN_DELAY_NS, self.run_delay, self.usual),
                (Metric.RANK_THROTTLED_NS, self.throttled, 0.0),
                (Metric.RANK_MAJOR_FAULTS, {one: rate / 1e9 for one, rate in self.faults_a_second.items()}, 0.0),
            ):
                grown = counter(at_ns, shares.get(rank, usual), random)
                parts.append(made_series(metric, host, device, at_ns, grown))
            parts.append(made_series(Metric.RANK_CORE, host, device, at_ns, float(rank % 8)))
        for host in sorted(set(view.hosts)):
            stalled = counter(at_ns, self.memory_pressure.get(host, 0.001), random)
            parts.append(made_series(Metric.HOST_PRESSURE_MEMORY_NS, host, "", at_ns, stalled))
            parts.append(made_series(Metric.HOST_CPU_STEAL, host, "", at_ns, self.steal.get(host, 0.001)))
            parts.append(made_series(Metric.HOST_MEMORY_TOTAL_BYTES, host, "", at_ns, MEMORY_BYTES))
        return replace(view, fleet=made_fleet(*parts, *events))


def counter(at_ns: Sequence[int] | np.ndarray, share: float, random: np.random.Generator) -> np.ndarray:  # type: ignore[type-arg]
    """Values of a counter with a random start. It grows unevenly, on average by this share of the time."""
    lengths = np.diff(np.asarray(at_ns), prepend=at_ns[0])
    return np.asarray(random.integers(10**9) + np.cumsum(lengths * share * random.uniform(0.5, 1.5, len(lengths))))


def the_finding(view: RunView) -> Finding:
    (finding,) = detect_host_contention(view)
    return finding


def busy(view: RunView, host: str, device: str, text: str, *, after_s: float = 4.0) -> HostEvent:
    start = timed(view).step_start_ns
    assert start is not None
    return made_event(Happening.BUSY_PROCESS, host, device, at_ns=int(start[0] + after_s * SECOND_NS), text=text)


CLEAR = contended_view(GRID, stopped={SLOW: 1.5})
LESS_CLEAR = contended_view(GRID, stopped={SLOW: 0.22})
MORE_CALM = [contended_view(GRID, busy=busy, seed=seed) for busy in (0.02, 0.3, 1.0) for seed in range(5)]


@pytest.mark.parametrize("every_ns", [SECOND_NS, 5 * SECOND_NS])
def test_the_process_on_the_core_of_the_rank_is_named(every_ns: int) -> None:
    elsewhere = busy(CLEAR, "cpu-01", "core6", "99 backup 0.99")
    here = busy(CLEAR, "cpu-01", "core1", "4711 stress-ng (cpu) 0.90")
    other_host = busy(CLEAR, "cpu-00", "core1", "98 rsync 1.00")
    load = HostLoad(run_delay={SLOW: 0.5}, every_ns=every_ns)
    finding = the_finding(load.added_to(CLEAR, elsewhere, here, other_host))
    assert finding.ranks == [SLOW]
    assert finding.evidence["cause"] == "process"
    assert finding.evidence["process"] == "4711 stress-ng (cpu)"
    assert finding.summary.endswith(": pid 4711 stress-ng (cpu) uses 0.90 of core 1, where rank 9 runs")
    assert "pid 4711 stress-ng (cpu)" in finding.next_step


def test_process_is_named_by_its_core_when_the_run_delay_is_unknown() -> None:
    view = HostLoad().added_to(CLEAR, busy(CLEAR, "cpu-01", "core1", "4711 stress-ng 0.90"))
    silent = {metric: series for metric, series in view.fleet.series.items() if metric != Metric.RANK_RUN_DELAY_NS}
    finding = the_finding(replace(view, fleet=replace(view.fleet, series=silent)))
    assert finding.evidence["process"] == "4711 stress-ng"


def test_busiest_process_on_another_core_is_mentioned_but_not_named_as_the_cause() -> None:
    load = HostLoad(run_delay={SLOW: 0.5}).added_to(CLEAR, busy(CLEAR, "cpu-01", "core6", "99 backup 0.99"))
    finding = the_finding(load)
    assert finding.evidence["cause"] == "crowded"
    assert "process" not in finding.evidence
    assert finding.summary.endswith("the busiest process: pid 99 backup uses 0.99 of core 6 of cpu-01")


def test_growth_after_the_last_sample_of_a_counter_is_zero_for_a_minute_then_unknown() -> None:
    load = made_series(Metric.RANK_MAJOR_FAULTS, "cpu-01", "rank9", [BEGAN_NS], [70.0])
    measures = Measures(made_fleet(load))
    for after_s, known in ((-5, None), (0, 0.0), (60, 0.0), (600, None)):
        first_ns = BEGAN_NS + after_s * SECOND_NS
        period = Period(first_ns=first_ns, last_ns=first_ns + 4 * SECOND_NS)
        assert measures.growth(Metric.RANK_MAJOR_FAULTS, ("cpu-01", "rank9"), period) == known


def test_process_that_uses_many_cores_is_named_when_the_rank_waited() -> None:
    load = HostLoad(run_delay={SLOW: 0.5}).added_to(CLEAR, busy(CLEAR, "cpu-01", "", "4711 make 6.50"))
    assert the_finding(load).summary.endswith(": pid 4711 make uses 6.50 of the cores of cpu-01")


@pytest.mark.parametrize("after_s", [-30.0, 600.0])
def test_process_that_was_busy_at_another_time_is_not_named(after_s: float) -> None:
    event = busy(CLEAR, "cpu-01", "core1", "4711 stress-ng 0.90", after_s=after_s)
    finding = the_finding(HostLoad(run_delay={SLOW: 0.5}).added_to(CLEAR, event))
    assert finding.evidence["cause"] == "crowded"
    assert "process" not in finding.evidence


def test_process_on_another_core_is_not_named_when_the_rank_did_not_wait_for_a_core() -> None:
    finding = the_finding(HostLoad().added_to(CLEAR, busy(CLEAR, "cpu-01", "core6", "99 backup 0.99")))
    assert "cause" not in finding.evidence


def test_stops_by_a_signal_are_counted_and_timed() -> None:
    view = timed(CLEAR)
    assert view.step_start_ns is not None
    begin = int(view.step_start_ns[0])
    events = [
        made_event(name, "cpu-01", "rank9", at_ns=begin + int(at_s * SECOND_NS))
        for since_s, until_s in ((-30.0, -20.0), (-10.0, 1.0), (3.0, 4.0), (6.0, 7.0))
        for name, at_s in ((Happening.RANK_STOPPED, since_s), (Happening.RANK_CONTINUED, until_s))
    ]
    events.append(replace(events[0], device="rank4", at_ns=begin))
    finding = the_finding(HostLoad().added_to(CLEAR, *events))
    assert finding.evidence["cause"] == "stopped"
    assert "a signal stopped its process 3 times, for 3.0 s" in finding.summary


def test_cgroup_quota_is_named_as_the_cause_instead_of_a_busy_process() -> None:
    load = HostLoad(throttled={SLOW: 0.3}, run_delay={SLOW: 0.5})
    finding = the_finding(load.added_to(CLEAR, busy(CLEAR, "cpu-01", "core1", "4711 stress-ng 0.90")))
    assert finding.evidence["cause"] == "quota"
    assert "cpu.max" in finding.next_step


def test_memory_shortage_is_the_cause_and_the_process_that_holds_memory_is_named() -> None:
    short = replace(busy(CLEAR, "cpu-01", "", f"4711 redis {20 * 2**30}"), name=Happening.MEMORY_SHORT)
    load = HostLoad(faults_a_second={SLOW: 400.0}, memory_pressure={"cpu-01": 0.4})
    finding = the_finding(load.added_to(CLEAR, short))
    assert finding.evidence["cause"] == "memory"
    assert finding.evidence["process"] == "4711 redis"
    assert "pid 4711 redis holds 20.0 GiB" in finding.summary


def test_small_process_is_not_named_for_a_memory_shortage() -> None:
    short = replace(busy(CLEAR, "cpu-01", "", f"4711 bash {2**22}"), name=Happening.MEMORY_SHORT)
    load = HostLoad(faults_a_second={SLOW: 400.0}, memory_pressure={"cpu-01": 0.4})
    finding = the_finding(load.added_to(CLEAR, short))
    assert finding.evidence["cause"] == "memory"
    assert "process" not in finding.evidence


def test_memory_shortage_is_not_the_cause_for_a_rank_without_page_faults() -> None:
    finding = the_finding(HostLoad(memory_pressure={"cpu-01": 0.4}).added_to(CLEAR))
    assert "cause" not in finding.evidence


def test_stolen_cpu_time_is_the_cause_only_for_a_whole_host() -> None:
    whole = contended_view(GRID, stopped=dict.fromkeys(range(8, 16), 1.2))
    load = HostLoad(steal={"cpu-01": 0.4})
    finding = the_finding(load.added_to(whole))
    assert finding.ranks == list(range(8, 16))
    assert finding.evidence["cause"] == "steal"
    assert "cause" not in the_finding(load.added_to(CLEAR)).evidence


def test_load_that_all_hosts_share_is_not_the_cause() -> None:
    everybody = dict.fromkeys(range(32), 0.4)
    finding = the_finding(HostLoad(run_delay=everybody, throttled=everybody).added_to(CLEAR))
    assert "cause" not in finding.evidence


def test_host_samples_do_not_change_ranks_window_or_cost_of_a_clear_finding() -> None:
    alone, load = the_finding(CLEAR), the_finding(HostLoad(run_delay={SLOW: 0.5}).added_to(CLEAR))
    assert (load.ranks, load.window, load.seconds_lost) == (alone.ranks, alone.window, alone.seconds_lost)


@over_seeds(range(10))
def test_weaker_spans_name_a_rank_if_host_evidence_is_strong(seed: int) -> None:
    view = contended_view(GRID, stopped={SLOW: 0.22}, seed=seed)
    assert detect_host_contention(view) == []
    finding = the_finding(HostLoad(run_delay={SLOW: 0.3}, seed=seed).added_to(view))
    assert finding.ranks == [SLOW]
    assert finding.evidence["cause"] == "crowded"


def test_strong_witness_does_not_explain_a_loss_much_larger_than_its_share() -> None:
    one = Witness(cause=Cause.CROWDED, share=0.15, text="", strong=True)
    assert one.explains(0.2)
    assert not one.explains(0.4)


def test_memory_shortage_confirms_weaker_spans() -> None:
    load = HostLoad(faults_a_second={SLOW: 300.0}, memory_pressure={"cpu-01": 0.3})
    assert the_finding(load.added_to(LESS_CLEAR)).evidence["cause"] == "memory"


@pytest.mark.parametrize("heavy", [False, True])
@over_seeds(range(5))
def test_paging_that_uses_cpu_time_is_reported_as_memory_shortage(seed: int, heavy: bool) -> None:
    """Kernel time for page faults counts as compute time. With ``heavy``, pipeline stage 1 has twice the work."""
    view = contended_view(GRID, slow={SLOW: 1.6}, seed=seed)
    if heavy:
        double = np.where(view.pp_of_rank == 1, 2.0, 1.0)
        work = {stage: replace(one, ns=one.ns * double) for stage, one in view.work.items()}
        view = replace(view, work=work, off_cpu={stage: ns * double for stage, ns in view.off_cpu.items()})
    load = HostLoad(faults_a_second={SLOW: 300.0}, memory_pressure={"cpu-01": 0.3})
    finding = the_finding(load.added_to(view))
    assert (finding.ranks, finding.evidence["cause"]) == ([SLOW], "memory")
    assert finding.evidence["own_time_ratio"] == pytest.approx(1.6, rel=0.1)
    assert "compute takes 1." in finding.summary


@each_case(
    "load",
    [
        HostLoad(),
        HostLoad(run_delay={SLOW: 0.5}),
        HostLoad(memory_pressure={"cpu-01": 0.3}),
        HostLoad(faults_a_second={9: 300.0}),
    ],
)
def test_rank_that_only_computes_longer_is_not_reported_as_contended(load: HostLoad) -> None:
    assert detect_host_contention(load.added_to(contended_view(GRID, slow={SLOW: 1.6}))) == []


@pytest.mark.parametrize(
    "load",
    [
        HostLoad(),
        HostLoad(run_delay={SLOW: 0.08}),
        HostLoad(run_delay={4: 0.5}),
        HostLoad(run_delay=dict.fromkeys(range(8, 16), 0.3)),
        HostLoad(run_delay=dict.fromkeys(range(32), 0.3)),
        HostLoad(memory_pressure={"cpu-01": 0.5}),
    ],
    ids=["nothing", "too little", "of another", "of all its neighbours", "of all", "memory without a fault"],
)
def test_weaker_spans_name_no_rank_if_host_evidence_is_weak(load: HostLoad) -> None:
    assert detect_host_contention(load.added_to(LESS_CLEAR)) == []


@pytest.mark.parametrize("view", MORE_CALM)
def test_busy_host_that_slows_no_rank_is_not_reported(view: RunView) -> None:
    load = HostLoad(
        run_delay={SLOW: 0.5}, throttled={4: 0.5}, faults_a_second={17: 500.0}, memory_pressure={"cpu-02": 0.5}
    )
    assert detect_host_contention(load.added_to(view, busy(view, "cpu-01", "core1", "4711 stress-ng 0.99"))) == []


@over_seeds(range(10))
def test_no_rank_is_named_when_all_ranks_wait_for_few_cores(seed: int) -> None:
    view = contended_view(Topology(dp=2, pp=2, tp=2), busy=1.0, jitter=0.5, seed=seed)
    waits = dict(enumerate(np.random.default_rng(seed).uniform(0.3, 0.7, 8).tolist()))
    assert detect_host_contention(HostLoad(run_delay=waits, seed=seed).added_to(view)) == []


def test_finding_has_no_cause_when_steps_have_no_wall_time() -> None:
    view = replace(HostLoad(run_delay={SLOW: 0.5}).added_to(CLEAR), step_start_ns=None)
    assert "cause" not in the_finding(view).evidence


@pytest.mark.parametrize("text", ["", "4711", "4711 stress-ng", "a b c", "4711 stress-ng much"])
def test_busy_process_with_invalid_text_is_not_named_as_the_cause(text: str) -> None:
    finding = the_finding(HostLoad(run_delay={SLOW: 0.5}).added_to(CLEAR, busy(CLEAR, "cpu-01", "core1", text)))
    assert finding.evidence["cause"] == "crowded"


def test_cause_is_found_for_one_of_four_thousand_ranks() -> None:
    view = contended_view(Topology(dp=64, pp=8, tp=8), num_steps=20, stopped={777: 3.0})
    finding = the_finding(HostLoad(run_delay={777: 0.6}).added_to(view))
    assert finding.ranks == [777]
    assert finding.evidence["cause"] == "crowded"
