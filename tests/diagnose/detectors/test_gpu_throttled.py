from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from diagnose.detectors.compute_straggler import detect_compute_stragglers
from diagnose.detectors.gpu_throttled import detect_gpu_throttled
from diagnose.findings import Kind, Role, Severity
from telemetry.host_metrics import Happening, Metric
from telemetry.topology import Topology
from tests.diagnose.made_fleet import SECOND_NS, made_event, made_fleet
from tests.diagnose.made_gpus import COUNTERS, FULL_MHZ, LOW_MHZ, Throttling, with_gpus
from tests.diagnose.made_view import make_view
from tests.diagnose.over_seeds import over_seeds
from tests.each_case import each_case

MANY_PEERS = [Topology(dp=2, pp=2, tp=2), Topology(dp=4), Topology(dp=8, pp=4, tp=4)]
GRIDS = [*MANY_PEERS, Topology(dp=2), Topology(dp=2, pp=2)]


def culprit_of(topology: Topology, seed: int) -> int:
    return int(np.random.default_rng(seed).integers(topology.world_size))


@each_case("topology", GRIDS)
@over_seeds(range(10))
def test_a_healthy_run_yields_nothing(topology: Topology, seed: int) -> None:
    assert detect_gpu_throttled(with_gpus(make_view(topology, seed=seed), lottery=0.6, seed=seed)) == []


@each_case(("topology", "factor"), [*product(MANY_PEERS, [1.1]), *product(GRIDS, [1.4])])
@over_seeds(range(4))
def test_only_the_throttled_gpu_that_slows_its_rank_is_named(topology: Topology, factor: float, seed: int) -> None:
    culprit = culprit_of(topology, seed)
    view = make_view(topology, slow={culprit: factor}, seed=seed)
    (finding,) = detect_gpu_throttled(with_gpus(view, [Throttling(rank=culprit, share=0.7)], lottery=0.05))
    assert finding.kind is Kind.GPU_THROTTLED
    assert finding.ranks == [culprit]
    assert finding.evidence["ratio"] == pytest.approx(factor, rel=0.05)
    assert finding.evidence["throttled_share"] == pytest.approx(0.7, abs=0.05)


@each_case("topology", GRIDS)
@each_case("jitter", [0.3, 1.0])
@over_seeds(range(12))
def test_heavy_jitter_yields_nothing_even_if_a_gpu_is_throttled(topology: Topology, jitter: float, seed: int) -> None:
    view = make_view(topology, jitter=jitter, seed=seed)
    throttling = [Throttling(rank=culprit_of(topology, seed), share=0.7)]
    assert detect_gpu_throttled(with_gpus(view, throttling, lottery=0.3, seed=seed)) == []


@each_case("topology", GRIDS)
@over_seeds(range(10))
def test_a_throttled_gpu_that_slows_nothing_is_not_named(topology: Topology, seed: int) -> None:
    throttling = [Throttling(rank=culprit_of(topology, seed), share=0.9)]
    assert detect_gpu_throttled(with_gpus(make_view(topology, seed=seed), throttling)) == []


@over_seeds(range(5))
def test_slow_rank_yields_nothing_when_all_gpus_are_at_the_power_cap(seed: int) -> None:
    view = make_view(Topology(dp=2, pp=2, tp=2), slow={5: 1.4}, seed=seed)
    assert detect_gpu_throttled(with_gpus(view, everybody=0.9)) == []


def test_throttled_gpu_is_not_named_when_another_rank_is_slow() -> None:
    view = make_view(Topology(dp=4, tp=2), slow={5: 1.4})
    assert detect_gpu_throttled(with_gpus(view, [Throttling(rank=2, share=0.8)])) == []


@over_seeds(range(10))
def test_constantly_slow_rank_is_not_attributed_to_intermittent_throttling(seed: int) -> None:
    view = make_view(Topology(dp=8), num_steps=80, slow={3: 1.15}, seed=seed)
    rows = tuple(row for row in range(80) if row // 8 % 2)
    assert detect_gpu_throttled(with_gpus(view, [Throttling(rank=3, share=0.8, rows=rows)])) == []


@over_seeds(range(10))
def test_wide_spread_among_all_ranks_is_not_attributed_to_a_throttled_gpu(seed: int) -> None:
    view = make_view(Topology(dp=8, pp=2, tp=2), rank_spread=0.2, seed=seed)
    assert detect_gpu_throttled(with_gpus(view, [Throttling(rank=seed, share=0.8)])) == []


def test_slightly_slow_rank_is_named_only_together_with_its_throttled_gpu() -> None:
    alone, beside = 0, 0
    for seed in range(20):
        view = make_view(Topology(dp=4), jitter=0.06, slow={1: 1.06}, seed=seed)
        found = detect_gpu_throttled(with_gpus(view, [Throttling(rank=1, share=0.8)]))
        assert all(finding.ranks == [1] for finding in found)
        alone += len(detect_compute_stragglers(view))
        beside += len(found)
    assert alone == 0
    assert beside >= 15


def test_finding_gives_first_step_and_cost_of_throttling_that_begins_mid_window() -> None:
    view = make_view(Topology(dp=2, pp=2, tp=2), num_steps=120, slow={5: 1.5}, slow_from_row=60, rank_spread=0.0)
    (finding,) = detect_gpu_throttled(with_gpus(view, [Throttling(rank=5, share=0.9, from_row=60)]))
    assert abs(finding.window.first_step - 160) <= 4  # counters are sampled about every four steps
    assert f"since step {finding.window.first_step}" in finding.summary
    assert finding.seconds_lost == pytest.approx(60 * 0.060, rel=0.15)
    assert finding.severity is Severity.CRITICAL


def test_cost_and_ratio_are_means_when_counters_do_not_resolve_the_slow_steps() -> None:
    topology, rank, num_steps = Topology(dp=4), 2, 100
    calm = make_view(topology, num_steps=num_steps, rank_spread=0.0)
    slow = make_view(topology, num_steps=num_steps, rank_spread=0.0, slow={rank: 1.4})
    is_slow = (np.arange(num_steps) % 5 < 3)[:, None]  # the counters grow by 60% of the time in every step
    mixed = {
        stage: replace(work, ns=np.where(is_slow, work.ns, calm.work[stage].ns)) for stage, work in slow.work.items()
    }
    (finding,) = detect_gpu_throttled(with_gpus(replace(slow, work=mixed), [Throttling(rank=rank, share=0.6)]))
    lost_ns = sum(float((work.ns - calm.work[stage].ns)[:, rank].sum()) for stage, work in mixed.items())
    assert finding.seconds_lost == pytest.approx(lost_ns / 1e9, rel=0.1)
    assert finding.evidence["ratio"] == pytest.approx(1 + 0.4 * 3 / 5, rel=0.02)


@each_case(
    ("metric", "reason", "hint"),
    [
        (Metric.GPU_THROTTLE_POWER_NS, "power cap", "power limit"),
        (Metric.GPU_THROTTLE_SOFTWARE_THERMAL_NS, "heat", "cooling"),
        (Metric.GPU_THROTTLE_POWER_BRAKE_NS, "power brake", "power supplies"),
    ],
)
def test_next_step_depends_on_the_throttle_reason(metric: str, reason: str, hint: str) -> None:
    view = make_view(Topology(dp=4), slow={2: 1.3})
    (finding,) = detect_gpu_throttled(with_gpus(view, [Throttling(rank=2, share=0.5, metric=metric)]))
    assert finding.evidence["reason"] == reason
    assert hint in finding.next_step


def test_the_summary_names_rank_host_gpu_share_and_clocks() -> None:
    view = make_view(Topology(dp=16), slow={9: 1.3})
    (finding,) = detect_gpu_throttled(with_gpus(view, [Throttling(rank=9, share=0.5)]))
    assert finding.summary.startswith(
        "rank 9 (host gpu-01, dp9 pp0 tp0): gpu1 is throttled (power cap) 50% of the time"
    )
    assert f"at {LOW_MHZ:,.0f} MHz against {FULL_MHZ:,.0f}" in finding.summary
    assert finding.evidence["gpus"] == ["gpu-01/gpu1"]


def test_host_with_all_gpus_throttled_is_one_finding() -> None:
    hot = range(8, 16)
    view = make_view(Topology(dp=32), slow=dict.fromkeys(hot, 1.3))
    throttling = [Throttling(rank=rank, share=0.6, metric=COUNTERS[1]) for rank in hot]
    (finding,) = detect_gpu_throttled(with_gpus(view, throttling))
    assert finding.ranks == list(hot)
    assert finding.summary.startswith("host gpu-01 (ranks 8-15)")


def test_waiting_ranks_are_victims() -> None:
    view = make_view(Topology(dp=2, pp=2, tp=2), slow={5: 1.5})
    (finding,) = detect_gpu_throttled(with_gpus(view, [Throttling(rank=5, share=0.6)]))
    assert {suspect.rank for suspect in finding.suspects if suspect.role is Role.VICTIM} == {4, 7}


def test_only_the_overheated_gpu_of_a_sync_boost_group_is_named() -> None:
    view = make_view(Topology(dp=32), slow={8: 1.3, 9: 1.3})
    throttling = [
        Throttling(rank=8, share=0.6, metric=Metric.GPU_THROTTLE_SOFTWARE_THERMAL_NS),
        Throttling(rank=9, share=0.6, metric=Metric.GPU_THROTTLE_SYNC_BOOST_NS),
    ]
    (finding,) = detect_gpu_throttled(with_gpus(view, throttling))
    assert finding.ranks == [8]


def test_rank_is_matched_to_its_gpu_by_the_recorded_uuid() -> None:
    view = with_gpus(make_view(Topology(dp=4), slow={0: 1.4}), [Throttling(rank=3, share=0.7)])
    assert detect_gpu_throttled(view) == []
    uuids = [f"{rank}{rank}aa-bb" for rank in range(4)]
    seen = [
        made_event(Happening.GPU_SEEN, "gpu-00", f"gpu{3 - rank}", at_ns=SECOND_NS, text=f"GPU-{uuids[rank].upper()}")
        for rank in range(4)
    ]
    view = replace(
        view,
        meta=tuple({"device": "cuda", "gpu_uuid": uuid} for uuid in uuids),
        fleet=replace(view.fleet, events=made_fleet(*seen).events),
    )
    (finding,) = detect_gpu_throttled(view)
    assert finding.ranks == [0]
    assert finding.evidence["gpus"] == ["gpu-00/gpu3"]


def test_slow_cpu_rank_is_not_attributed_to_a_throttled_gpu() -> None:
    view = with_gpus(make_view(Topology(dp=4), slow={2: 1.4}), [Throttling(rank=2, share=0.7)])
    assert detect_gpu_throttled(view)
    assert detect_gpu_throttled(replace(view, meta=({"device": "cpu"},) * 4)) == []


def test_view_without_wall_times_or_counters_yields_nothing() -> None:
    view = with_gpus(make_view(Topology(dp=4), slow={2: 1.4}), [Throttling(rank=2, share=0.7)])
    assert detect_gpu_throttled(replace(view, step_start_ns=None)) == []
    assert detect_gpu_throttled(replace(view, fleet=made_fleet())) == []


def test_five_steps_are_too_few_to_name_a_rank() -> None:
    view = make_view(Topology(dp=4), num_steps=5, slow={1: 2.0})
    assert detect_gpu_throttled(with_gpus(view, [Throttling(rank=1, share=0.9)])) == []


def test_throttled_gpu_is_not_named_when_its_peer_gpu_has_too_few_samples() -> None:
    view = with_gpus(make_view(Topology(dp=2), num_steps=60, slow={1: 1.4}), everybody=0.9)
    short = {
        metric: tuple(
            replace(one, at_ns=one.at_ns[:7], value=one.value[:7], mean=one.mean[:7]) if one.device == "gpu0" else one
            for one in many
        )
        for metric, many in view.fleet.series.items()
    }
    assert detect_gpu_throttled(replace(view, fleet=replace(view.fleet, series=short))) == []


@over_seeds(range(5))
def test_throttling_of_negligible_cost_is_not_reported(seed: int) -> None:
    view = make_view(Topology(dp=8), num_steps=200, jitter=0.01, rank_spread=0.001, slow={3: 1.02}, seed=seed)
    assert detect_gpu_throttled(with_gpus(view, [Throttling(rank=3, share=0.8)])) == []
