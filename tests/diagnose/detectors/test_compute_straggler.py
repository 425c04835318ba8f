from itertools import product

import numpy as np
import pytest

from diagnose.detectors import compute_straggler
from diagnose.detectors.compute_straggler import detect_compute_stragglers
from diagnose.findings import Kind, Role
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.made_view import make_view
from tests.diagnose.over_seeds import over_seeds
from tests.each_case import each_case

MANY_PEERS = [Topology(dp=2, pp=2, tp=2), Topology(dp=4), Topology(dp=8, pp=4, tp=4)]
ONE_PEER = [Topology(dp=2), Topology(dp=2, pp=2)]
GRIDS = [*MANY_PEERS, *ONE_PEER]


@each_case("topology", GRIDS)
@over_seeds(range(10))
def test_a_healthy_run_yields_nothing(topology: Topology, seed: int) -> None:
    assert detect_compute_stragglers(make_view(topology, seed=seed)) == []


@pytest.mark.parametrize(
    ("topology", "factor"),
    [*product(MANY_PEERS, [1.15, 1.3, 2.0]), *product(ONE_PEER, [1.3, 2.0])],
    ids=str,
)
@over_seeds(range(5))
def test_only_the_slow_rank_is_named(topology: Topology, factor: float, seed: int) -> None:
    culprit = int(np.random.default_rng(seed).integers(topology.world_size))
    (finding,) = detect_compute_stragglers(make_view(topology, slow={culprit: factor}, seed=seed))
    assert finding.kind is Kind.COMPUTE_STRAGGLER
    assert finding.ranks == [culprit]
    assert finding.evidence["ratio"] == pytest.approx(factor, rel=0.06)


@each_case("topology", GRIDS)
@each_case("jitter", [0.3, 1.0])
@over_seeds(range(10))
def test_heavy_jitter_without_a_culprit_yields_nothing(topology: Topology, jitter: float, seed: int) -> None:
    assert detect_compute_stragglers(make_view(topology, jitter=jitter, seed=seed)) == []


@each_case("noise", [0.2, 0.4])
@over_seeds(range(20))
def test_no_rank_is_named_while_all_ranks_are_noisy(noise: float, seed: int) -> None:
    view, random = make_view(Topology(dp=2, pp=2, tp=2), seed=seed), np.random.default_rng(seed)
    for work in view.work.values():
        work.ns[10:22] *= np.exp(random.normal(0.0, noise, work.ns[10:22].shape))
    assert detect_compute_stragglers(view) == []


@over_seeds(range(10))
def test_rank_with_a_few_very_long_steps_is_not_a_straggler(seed: int) -> None:
    """Seen on a crowded machine: five of seven steps are long. The median step takes 1.6 times that of the peers."""
    view = make_view(Topology(dp=2, pp=2, tp=2), num_steps=60, jitter=0.07, seed=seed)
    view.work[Stage.FORWARD_COMPUTE].ns[15:22, 7] *= (1.2, 7.1, 2.5, 1.6, 1.0, 0.9, 1.7)
    assert detect_compute_stragglers(view) == []


@over_seeds(range(10))
def test_speed_differences_among_all_ranks_yield_no_straggler(seed: int) -> None:
    assert detect_compute_stragglers(make_view(Topology(dp=8, pp=2, tp=2), rank_spread=0.2, seed=seed)) == []


def test_finding_starts_at_the_first_slow_step_of_a_fault_that_begins_mid_window() -> None:
    view = make_view(Topology(dp=2, pp=2, tp=2), num_steps=60, slow={5: 1.4}, slow_from_row=30)
    (finding,) = detect_compute_stragglers(view)
    assert finding.ranks == [5]
    assert abs(finding.window.first_step - 130) <= 1
    assert f"since step {finding.window.first_step}" in finding.summary


@pytest.mark.parametrize(("other", "named"), [(1.06, [[1]]), (1.3, [[0], [1]])])
def test_ranks_slow_in_different_stages_are_not_merged_into_a_host_finding(
    other: float, named: list[list[int]]
) -> None:
    view = make_view(Topology(dp=2), num_steps=60)
    view.work[Stage.FORWARD_COMPUTE].ns[:, 1] *= 1.6
    view.work[Stage.BACKWARD_COMPUTE].ns[:, 0] *= other
    assert [finding.ranks for finding in detect_compute_stragglers(view)] == named


def test_host_with_mostly_slow_ranks_is_one_finding() -> None:
    view = make_view(Topology(dp=8, pp=1, tp=4), slow={rank: 1.3 for rank in range(8, 15)})
    (finding,) = detect_compute_stragglers(view)
    assert finding.ranks == list(range(8, 15))
    assert finding.summary.startswith("host gpu-01 (ranks 8-14)")


def test_waiting_ranks_are_victims_and_the_summary_names_only_the_culprit() -> None:
    (finding,) = detect_compute_stragglers(make_view(Topology(dp=2, pp=2, tp=2), slow={5: 1.5}))
    assert {suspect.rank for suspect in finding.suspects if suspect.role is Role.VICTIM} == {4, 7}
    assert finding.summary.startswith("rank 5 (host gpu-00, dp1 pp0 tp1): ")


def test_lost_share_and_seconds_are_the_extra_compute_time_of_the_slow_rank() -> None:
    (finding,) = detect_compute_stragglers(make_view(Topology(dp=2, pp=2, tp=2), slow={5: 1.5}, rank_spread=0.0))
    assert finding.share_lost == pytest.approx(0.25, abs=0.02)
    assert finding.seconds_lost == pytest.approx(40 * 0.060, rel=0.1)


def test_heavy_pipeline_stage_is_not_reported_as_a_slow_rank() -> None:
    assert detect_compute_stragglers(make_view(Topology(dp=2, pp=2, tp=2), heavy_stage={1: 1.6})) == []


def test_five_steps_are_too_few_to_name_a_rank() -> None:
    assert detect_compute_stragglers(make_view(Topology(dp=4), num_steps=5, slow={1: 2.0})) == []


@pytest.mark.parametrize("slow_steps", [6, 10])
def test_rank_that_was_always_slightly_slow_is_reported_promptly_when_it_slows_down(slow_steps: int) -> None:
    healthy = make_view(Topology(dp=2, pp=2, tp=2), num_steps=20)
    for work in healthy.work.values():
        work.ns[:, 4] *= 1.04
    assert detect_compute_stragglers(healthy) == []
    for work in healthy.work.values():
        work.ns[-slow_steps:, 4] *= 3.0
    (finding,) = detect_compute_stragglers(healthy)
    assert finding.ranks == [4]
    assert finding.window.first_step == 120 - slow_steps
    assert finding.evidence["ratio"] == pytest.approx(3.0, rel=0.1)


@over_seeds(range(20))
def test_ranks_that_are_examined_one_by_one_include_each_rank_that_passes(seed: int) -> None:
    """The first test of all ranks together may not lose one."""
    random = np.random.default_rng(seed)
    slow = {int(rank): float(random.uniform(1.01, 1.4)) for rank in random.integers(0, 16, size=3)}
    view = make_view(Topology(dp=4, pp=2, tp=2), slow=slow, jitter=float(random.choice([0.02, 0.3])), seed=seed)
    for stage, work in view.work.items():
        work.ns[random.integers(0, len(work.ns), size=4), random.integers(0, 16, size=4)] = np.nan
        compared = compute_straggler._compare(stage, work.ns, view)
        passing = [rank for rank in range(16) if compute_straggler._slowness(rank, compared, view)]
        assert set(passing) <= set(compute_straggler._candidates(compared))
    assert len(compute_straggler._candidates(compared)) < 16
