import numpy as np
import pytest

from diagnose.detectors.late_launch import detect_late_launch
from diagnose.detectors.slow_link import detect_slow_link
from diagnose.findings import Basis, Kind, Role, Severity
from telemetry.topology import Topology
from tests.diagnose.made_collectives import GRIDS, Delays, SlowGroups, made_large_view, make_collective_view
from tests.diagnose.over_seeds import over_seeds
from tests.each_case import each_case

SMALL, MIDDLE, FLAT, NO_TP = GRIDS


def slow_ranks(
    topology: Topology, ranks: list[int], times: float, num_steps: int = 40, from_row: int = 0
) -> SlowGroups:
    factor = np.ones((num_steps, topology.world_size))
    factor[from_row:, ranks] = times
    return SlowGroups(of_rank=factor)


@each_case("topology", GRIDS)
@over_seeds(range(10))
def test_a_healthy_run_yields_nothing(topology: Topology, seed: int) -> None:
    assert detect_slow_link(make_collective_view(topology, seed=seed)) == []


@each_case("topology", GRIDS)
@each_case("jitter", [0.3, 1.0])
@over_seeds(range(10))
def test_heavy_jitter_yields_nothing(topology: Topology, jitter: float, seed: int) -> None:
    assert detect_slow_link(make_collective_view(topology, jitter=jitter, launch_jitter_ns=10e6, seed=seed)) == []


@each_case("topology", [SMALL, NO_TP])
@each_case("noise", [0.4, 0.8])
@over_seeds(range(15))
def test_no_rank_is_named_while_all_transfers_are_noisy(topology: Topology, noise: float, seed: int) -> None:
    factor = np.ones((40, topology.world_size))
    factor[10:22] = np.exp(np.random.default_rng(seed).normal(0.0, noise, factor[10:22].shape))
    assert detect_slow_link(make_collective_view(topology, slow_groups=SlowGroups(of_rank=factor), seed=seed)) == []


@each_case("topology", [SMALL, MIDDLE])
@each_case("times", [2.0, 3.0, 8.0])
@over_seeds(range(8))
def test_only_the_rank_whose_groups_are_all_slow_is_named(topology: Topology, times: float, seed: int) -> None:
    culprit = int(np.random.default_rng(seed).integers(topology.world_size))
    view = make_collective_view(topology, slow_groups=slow_ranks(topology, [culprit], times), seed=seed, ranks_a_host=1)
    (finding,) = detect_slow_link(view)
    assert finding.kind is Kind.SLOW_LINK
    assert finding.ranks == [culprit]
    assert finding.evidence["ratio"] == pytest.approx(times, rel=0.25)
    assert f"rank {culprit} " in finding.summary


@each_case("host", [0, 3])
@over_seeds(range(5))
def test_slow_network_card_is_one_finding_that_names_the_host(host: int, seed: int) -> None:
    topology = Topology(dp=4, pp=4, tp=2)
    members = [2 * host, 2 * host + 1]
    view = make_collective_view(topology, slow_groups=slow_ranks(topology, members, 3.0), ranks_a_host=2, seed=seed)
    (finding,) = detect_slow_link(view)
    assert (finding.ranks, finding.hosts) == (members, [f"gpu-{host:02d}"])
    assert finding.summary.startswith(f"host gpu-{host:02d} (ranks {members[0]}-{members[1]})")


@pytest.mark.parametrize(
    ("topology", "ranks_a_host", "host"),
    [
        (Topology(dp=4, pp=8, tp=4), 8, 1),
        (Topology(dp=4, pp=4, tp=4), 8, 0),
        (Topology(dp=4, pp=4, tp=2), 4, 3),
        (Topology(dp=4, pp=8), 4, 2),
    ],
    ids=lambda value: str(value),
)
@over_seeds(range(3))
def test_host_with_several_stages_and_slow_transfers_is_one_finding_that_names_the_host(
    topology: Topology, ranks_a_host: int, host: int, seed: int
) -> None:
    """The transfers between two stages on the host are also slow."""
    members = list(range(host * ranks_a_host, (host + 1) * ranks_a_host))
    faults = slow_ranks(topology, members, 5.0, num_steps=12)
    (finding,) = detect_slow_link(
        make_collective_view(topology, slow_groups=faults, ranks_a_host=ranks_a_host, num_steps=12, seed=seed)
    )
    assert (finding.ranks, finding.hosts) == (members, [f"gpu-{host:02d}"])
    assert finding.basis is Basis.EXCESS
    assert finding.next_step.startswith(f"on gpu-{host:02d}: ")
    assert finding.next_step.count("gpu-") == 1


@pytest.mark.parametrize(
    ("ranks_a_host", "hosts"),
    [(8, [1, 3]), (8, [1, 2]), (8, [1, 5]), (4, [1, 3]), (4, [2, 3])],
    ids=["one host between", "neighbours", "two replicas", "one stage each, one host between", "one stage each"],
)
def test_two_hosts_with_slow_transfers_are_two_findings(ranks_a_host: int, hosts: list[int]) -> None:
    topology = Topology(dp=5, pp=8, tp=4)
    slow = [rank for host in hosts for rank in range(host * ranks_a_host, (host + 1) * ranks_a_host)]
    faults = slow_ranks(topology, slow, 5.0, num_steps=12)
    view = make_collective_view(topology, slow_groups=faults, ranks_a_host=ranks_a_host, num_steps=12)
    assert sorted(finding.hosts for finding in detect_slow_link(view)) == [[f"gpu-{host:02d}"] for host in hosts]


def test_two_slow_ranks_of_one_host_are_one_finding() -> None:
    topology = Topology(dp=4, pp=8, tp=4)
    (finding,) = detect_slow_link(
        make_collective_view(topology, slow_groups=slow_ranks(topology, [8, 14], 5.0), ranks_a_host=8)
    )
    assert (finding.ranks, finding.hosts) == ([8, 14], ["gpu-01"])


def test_slow_link_whose_faulty_end_is_unknown_reports_both_hosts() -> None:
    topology = Topology(dp=4, pp=2, tp=4)
    edges = {(rank, rank + 4): 4.0 for rank in range(8, 12)}
    (finding,) = detect_slow_link(make_collective_view(topology, slow_groups=SlowGroups(of_edge=edges)))
    assert finding.ranks == []
    assert finding.summary.startswith("the link between host gpu-02 (ranks 8-11) and host gpu-03 (ranks 12-15): ")
    assert "the records do not show which end of the link is slow" in finding.next_step
    assert finding.evidence["ends_of_link"] == ["gpu-02", "gpu-03"]


@over_seeds(range(5))
def test_slow_transfers_inside_a_host_are_one_finding_that_names_the_host(seed: int) -> None:
    """Collectives between hosts keep their speed, so the network is not the cause."""
    edges = {(rank, rank + 4): 4.0 for rank in range(16, 20)}
    topology = Topology(dp=4, pp=2, tp=4)
    (finding,) = detect_slow_link(
        make_collective_view(topology, slow_groups=SlowGroups(of_edge=edges), ranks_a_host=8, seed=seed)
    )
    assert finding.hosts == ["gpu-02"]
    assert finding.ranks == list(range(16, 24))


@over_seeds(range(5))
def test_host_with_a_slow_network_card_is_named_although_its_inner_transfers_are_fast(seed: int) -> None:
    topology = Topology(dp=4, pp=6, tp=2)
    edges = dict.fromkeys([(2, 4), (3, 5), (6, 8), (7, 9)], 4.0)  # in and out of ranks 4 to 7
    (finding,) = detect_slow_link(
        make_collective_view(topology, slow_groups=SlowGroups(of_edge=edges), ranks_a_host=4, seed=seed)
    )
    assert (finding.ranks, finding.hosts) == ([4, 5, 6, 7], ["gpu-01"])


@over_seeds(range(5))
def test_slow_pair_at_the_end_of_a_pipeline_names_no_rank(seed: int) -> None:
    """Rank 1 is also in a fast pair. Rank 0 is in no other pair, so the cause may be rank 0 or the link."""
    view = make_collective_view(Topology(dp=4, pp=3), slow_groups=SlowGroups(of_edge={(0, 1): 4.0}), seed=seed)
    (finding,) = detect_slow_link(view)
    assert finding.ranks == []


@over_seeds(range(10))
def test_constant_spread_among_all_pairs_is_not_a_slow_link(seed: int) -> None:
    random = np.random.default_rng(seed)
    edges = {(rank, rank + 2): float(np.exp(random.normal(0.0, 0.4))) for rank in range(MIDDLE.world_size)}
    assert detect_slow_link(make_collective_view(MIDDLE, slow_groups=SlowGroups(of_edge=edges), seed=seed)) == []


@over_seeds(range(5))
def test_groups_that_become_slow_together_are_one_finding_that_names_no_rank(seed: int) -> None:
    topology = Topology(dp=4, tp=4)
    faults = slow_ranks(topology, list(range(4)), 3.0, from_row=20)
    (finding,) = detect_slow_link(make_collective_view(topology, slow_groups=faults, ranks_a_host=4, seed=seed))
    assert (finding.ranks, finding.window.first_step) == ([], 120)
    assert finding.summary.startswith("4 groups (first: ranks 0, 4, 8, 12)")


@each_case("edge", [(1, 3), (9, 11)])
@over_seeds(range(5))
def test_slow_pair_reports_both_ranks_as_unknown_suspects(edge: tuple[int, int], seed: int) -> None:
    (finding,) = detect_slow_link(make_collective_view(MIDDLE, slow_groups=SlowGroups(of_edge={edge: 4.0}), seed=seed))
    assert finding.ranks == []
    assert {(suspect.rank, suspect.role) for suspect in finding.suspects} == {(rank, Role.UNKNOWN) for rank in edge}
    assert finding.summary.startswith(f"the link between ranks {edge[0]}, {edge[1]}: ")


@each_case("from_row", [10, 25])
@over_seeds(range(8))
def test_only_group_is_compared_with_its_own_past_and_names_no_rank(from_row: int, seed: int) -> None:
    view = make_collective_view(FLAT, slow_groups=slow_ranks(FLAT, [5], 3.0, from_row=from_row), seed=seed)
    findings = detect_slow_link(view)
    assert [finding.ranks for finding in findings] == [[]]
    assert findings[0].window.first_step == 100 + from_row
    assert findings[0].summary.startswith("the group of ranks 0-15: ")
    assert {suspect.role for suspect in findings[0].suspects} == {Role.UNKNOWN}
    assert len(findings[0].suspects) == 16


def test_a_group_that_was_always_slow_and_has_no_peer_is_not_named() -> None:
    assert detect_slow_link(make_collective_view(FLAT, slow_groups=slow_ranks(FLAT, [5], 3.0))) == []


@each_case("topology", GRIDS)
@over_seeds(range(10))
def test_slow_rank_that_makes_others_wait_is_not_a_slow_link(topology: Topology, seed: int) -> None:
    assert detect_slow_link(make_collective_view(topology, slow={topology.world_size - 1: 2.0}, seed=seed)) == []


@each_case("topology", GRIDS)
@over_seeds(range(10))
def test_late_launch_is_not_a_slow_link(topology: Topology, seed: int) -> None:
    late = np.zeros((40, topology.world_size))
    late[:, 1] = 60e6
    assert detect_slow_link(make_collective_view(topology, delays=Delays(before_launch=late), seed=seed)) == []


def test_equal_slowdown_of_compute_and_transfers_is_not_a_slow_link() -> None:
    slow = dict.fromkeys(range(16), 1.0)
    view = make_collective_view(FLAT, slow_groups=slow_ranks(FLAT, list(range(16)), 2.0, from_row=20), slow=slow)
    for stage in view.work:
        view.operations[stage].duration_ns[20:] *= 2
    assert detect_slow_link(view) == []


def test_slow_link_of_negligible_cost_is_not_reported() -> None:
    view = make_collective_view(MIDDLE, slow_groups=SlowGroups(of_edge={(1, 3): 1.2}))
    assert detect_slow_link(view) == []
    view = make_collective_view(MIDDLE, slow_groups=SlowGroups(of_edge={(1, 3): 4.0}))
    view.step_ns[:] = 10e9
    assert detect_slow_link(view) == []


@pytest.mark.parametrize(("times", "severity"), [(1.7, Severity.WARNING), (12.0, Severity.CRITICAL)])
def test_the_severity_follows_the_cost(times: float, severity: Severity) -> None:
    view = make_collective_view(SMALL, slow_groups=slow_ranks(SMALL, [5], times), ranks_a_host=1)
    (finding,) = detect_slow_link(view)
    assert finding.severity is severity
    assert finding.seconds_lost == pytest.approx(finding.share_lost * view.step_ns.sum() / 1e9, rel=0.02)


def test_two_slow_ranks_are_two_findings() -> None:
    topology = Topology(dp=4, pp=2, tp=4)
    view = make_collective_view(topology, slow_groups=slow_ranks(topology, [0, 29], 3.0), ranks_a_host=1)
    assert sorted(finding.ranks for finding in detect_slow_link(view)) == [[0], [29]]


def test_five_steps_are_too_few_to_name_a_rank() -> None:
    faults = slow_ranks(SMALL, [5], 5.0, num_steps=5)
    assert detect_slow_link(make_collective_view(SMALL, slow_groups=faults, num_steps=5)) == []


@pytest.mark.parametrize("dp", [48, pytest.param(192, marks=pytest.mark.long)])
def test_thousands_of_healthy_ranks_yield_no_slow_link_and_no_late_launch(dp: int) -> None:
    view = made_large_view(dp)
    assert detect_slow_link(view) == []
    assert detect_late_launch(view) == []


@each_case("host", range(4))
@over_seeds(range(5))
def test_slow_network_card_in_a_small_grid_names_its_host(host: int, seed: int) -> None:
    """Half of the comparable pairs become slow, and all data-parallel groups of one pipeline stage."""
    members = [2 * host, 2 * host + 1]
    slowed = slow_ranks(SMALL, members, 4.0, from_row=15)
    (finding,) = detect_slow_link(make_collective_view(SMALL, slow_groups=slowed, ranks_a_host=2, seed=seed))
    assert (finding.ranks, finding.hosts) == (members, [f"gpu-{host:02d}"])
