from dataclasses import replace

import numpy as np
import pytest

from diagnose.detectors.host_contention import detect_host_contention
from diagnose.findings import Kind, Severity
from diagnose.model.view import Basis, RunView, Work
from telemetry.topology import Topology
from tests.diagnose.made_view import make_view
from tests.diagnose.over_seeds import over_seeds
from tests.each_case import each_case

GRIDS = [Topology(dp=2, pp=2, tp=2), Topology(dp=8, pp=4, tp=2), Topology(dp=16)]


def contended_view(
    topology: Topology,
    *,
    busy: float = 0.02,
    stopped: dict[int, float] | None = None,
    from_row: int = 0,
    share: float = 1.0,
    num_steps: int = 40,
    jitter: float = 0.03,
    ranks_a_host: int = 8,
    slow: dict[int, float] | None = None,
    seed: int = 0,
) -> RunView:
    """Off-core time is the compute time, times ``busy``, times a random factor from 0.5 to 3.

    ``stopped`` maps a rank to its extra off-core time, as a multiple of the compute time. Only a ``share`` of the steps
    from ``from_row`` on has this extra time.
    """
    random = np.random.default_rng(seed)
    view = make_view(topology, num_steps=num_steps, jitter=jitter, slow=slow, seed=seed)
    affected = (np.arange(num_steps) >= from_row) & (random.uniform(size=num_steps) < share)
    more = np.zeros((num_steps, topology.world_size))
    for rank, times in (stopped or {}).items():
        more[affected, rank] = times
    off = {
        stage: work.ns * (busy * random.uniform(0.5, 3.0, work.ns.shape) + more * random.uniform(0.8, 1.2, more.shape))
        for stage, work in view.work.items()
    }
    hosts = tuple(f"cpu-{rank // ranks_a_host:02d}" for rank in range(topology.world_size))
    step_ns = view.step_ns + np.max(np.sum(list(off.values()), axis=0), axis=1)
    return replace(view, off_cpu=off, hosts=hosts, step_ns=step_ns)


@each_case("topology", GRIDS)
@over_seeds(range(10))
def test_a_healthy_run_yields_nothing(topology: Topology, seed: int) -> None:
    assert detect_host_contention(contended_view(topology, seed=seed)) == []


@each_case("topology", GRIDS[:2])
@each_case("ranks_a_host", [2, 8])
@over_seeds(range(15))
def test_no_rank_is_named_while_all_ranks_compete_for_cores(topology: Topology, ranks_a_host: int, seed: int) -> None:
    more = np.zeros((40, topology.world_size))
    more[10:30] = np.random.default_rng(seed).exponential(2.0, more[10:30].shape)
    view = contended_view(topology, ranks_a_host=ranks_a_host, seed=seed)
    off_cpu = {stage: off + view.work[stage].ns * more for stage, off in view.off_cpu.items()}
    assert detect_host_contention(replace(view, off_cpu=off_cpu)) == []


@each_case("topology", GRIDS)
@each_case("ranks_a_host", [4, 8])
@over_seeds(range(10))
def test_a_crowded_machine_yields_nothing(topology: Topology, ranks_a_host: int, seed: int) -> None:
    view = contended_view(topology, busy=1.0, jitter=0.5, ranks_a_host=ranks_a_host, seed=seed)
    assert detect_host_contention(view) == []


@over_seeds(range(20))
def test_a_few_steps_of_two_crowded_ranks_yield_nothing(seed: int) -> None:
    view = contended_view(Topology(dp=2), busy=1.0, num_steps=8, seed=seed)
    wild = np.exp(np.random.default_rng(seed).normal(0.0, 1.0, (8, 2)))
    off = {stage: ns * wild for stage, ns in view.off_cpu.items()}
    assert detect_host_contention(replace(view, off_cpu=off)) == []


@over_seeds(range(10))
def test_constant_spread_of_off_core_time_among_all_ranks_yields_nothing(seed: int) -> None:
    view = contended_view(Topology(dp=16), busy=0.3, seed=seed)
    lasting = np.exp(np.random.default_rng(seed).uniform(-1.0, 1.0, 16))
    off = {stage: ns * lasting for stage, ns in view.off_cpu.items()}
    assert detect_host_contention(replace(view, off_cpu=off)) == []


@over_seeds(range(5))
def test_rank_is_not_named_when_all_ranks_of_its_host_are_slightly_contended(seed: int) -> None:
    """The contention is too small to name the host. The rank is only slightly above its neighbours."""
    stopped = {**dict.fromkeys(range(8, 16), 0.25), 9: 0.5}
    assert detect_host_contention(contended_view(Topology(dp=128), stopped=stopped, seed=seed)) == []


def test_rank_contended_in_only_55_percent_of_steps_is_not_named() -> None:
    calm, hot = (contended_view(Topology(dp=8), stopped={2: more}) for more in (0.0, 2.0))
    rows = (np.arange(40) * 11 % 20 < 11)[:, None]
    off = {stage: np.where(rows, hot.off_cpu[stage], calm.off_cpu[stage]) for stage in hot.off_cpu}
    assert detect_host_contention(replace(hot, off_cpu=off)) == []


def test_contention_of_negligible_cost_is_not_reported() -> None:
    view = contended_view(Topology(dp=8), stopped={2: 2.0})
    assert detect_host_contention(replace(view, step_ns=view.step_ns * 100)) == []


@each_case("topology", GRIDS)
@each_case("more", [1.0, 3.0])
@each_case("busy", [0.02, 0.2])
@over_seeds(range(5))
def test_only_the_rank_kept_off_its_core_is_named(topology: Topology, more: float, busy: float, seed: int) -> None:
    culprit = int(np.random.default_rng(seed).integers(topology.world_size))
    (finding,) = detect_host_contention(contended_view(topology, busy=busy, stopped={culprit: more}, seed=seed))
    assert finding.kind is Kind.HOST_CONTENTION
    assert finding.ranks == [culprit]
    assert finding.evidence["extra_off_core_over_cpu"] == pytest.approx(more, rel=0.35)
    assert finding.severity is Severity.CRITICAL


@over_seeds(range(10))
def test_a_stopped_rank_is_found_on_a_crowded_machine(seed: int) -> None:
    topology = Topology(dp=2, pp=2, tp=2)
    (finding,) = detect_host_contention(contended_view(topology, busy=1.0, stopped={5: 4.0}, seed=seed))
    assert finding.ranks == [5]


@over_seeds(range(10))
def test_rank_with_an_intermittent_competing_load_is_named(seed: int) -> None:
    view = contended_view(Topology(dp=8, pp=4, tp=2), stopped={9: 1.5}, share=0.8, seed=seed)
    (finding,) = detect_host_contention(view)
    assert finding.ranks == [9]
    assert finding.evidence["share_of_steps"] >= 0.6


@over_seeds(range(5))
def test_finding_starts_at_the_first_step_of_a_load_that_begins_mid_window(seed: int) -> None:
    view = contended_view(Topology(dp=2, pp=2, tp=2), stopped={3: 1.5}, from_row=20, seed=seed)
    (finding,) = detect_host_contention(view)
    assert abs(finding.window.first_step - 120) <= 1
    assert f"since step {finding.window.first_step}" in finding.summary


@each_case("busy", [0.02, 0.3])
@over_seeds(range(5))
def test_host_with_most_ranks_kept_off_their_cores_is_one_finding(busy: float, seed: int) -> None:
    stopped = dict.fromkeys(range(8, 15), 1.2)
    view = contended_view(Topology(dp=8, pp=2, tp=2), busy=busy, stopped=stopped, seed=seed)
    (finding,) = detect_host_contention(view)
    assert set(finding.ranks) == set(range(8, 15))
    assert finding.summary.startswith("host cpu-01 (ranks 8-14)")


@each_case("topology", GRIDS)
@over_seeds(range(5))
def test_rank_with_more_compute_time_is_not_reported_as_contended(topology: Topology, seed: int) -> None:
    assert detect_host_contention(contended_view(topology, busy=0.3, slow={3: 2.0}, seed=seed)) == []


def test_view_without_cpu_time_yields_nothing() -> None:
    view = contended_view(Topology(dp=4), stopped={2: 3.0})
    work = {stage: Work(ns=one.ns, basis=Basis.SELF_TIME) for stage, one in view.work.items()}
    assert detect_host_contention(replace(view, work=work)) == []
    assert detect_host_contention(replace(view, off_cpu={})) == []


def test_missing_values_of_a_rank_and_a_step_do_not_hide_the_contended_rank() -> None:
    view = contended_view(Topology(dp=4), stopped={2: 3.0})
    for off in view.off_cpu.values():
        off[:, 0] = np.nan
        off[5] = np.nan
    (finding,) = detect_host_contention(view)
    assert finding.ranks == [2]


def test_five_steps_are_too_few_to_name_a_rank() -> None:
    assert detect_host_contention(contended_view(Topology(dp=4), stopped={2: 3.0}, num_steps=5)) == []


def test_one_of_twelve_thousand_ranks_is_named() -> None:
    view = contended_view(Topology(dp=192, pp=8, tp=8), busy=1.0, num_steps=20, stopped={777: 9.0})
    (finding,) = detect_host_contention(view)
    assert finding.ranks == [777]
