"""The sentence above the heat map: it names the unusual ranks together, and no rank for noise."""

from dataclasses import replace

import numpy as np

from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.each_case import each_case
from tests.ui.few_spans import made_facts
from ui.dashboard.data.stage_times import PROCESSOR, WALL
from ui.dashboard.pages.heat_map.summary import heat_map_summary
from ui.dashboard.records import RunFacts, StageTimes
from ui.dashboard.view_state import Metric

STEP_NS = 200e6


def facts_of(mesh: str) -> RunFacts:
    topology = Topology.parse(mesh)
    return replace(made_facts(topology.world_size), topology=topology)


def times_of(
    stage: Stage, ms: list[float], ratio: list[float] | None = None, basis: str = WALL, mask: int = 0
) -> StageTimes:
    """``ms``, ``ratio``: by rank, the same in both steps."""
    return StageTimes(
        stage=stage,
        steps=np.arange(2),
        ns=np.array([ms, ms]) * 1e6,
        ratio=np.array([ratio or np.ones_like(ms)] * 2),
        step_ns=np.full(2, STEP_NS),
        basis=basis,
        group_mask=mask,
    )


@each_case(
    ("ratio", "said"),
    [
        ([1.0, 0.99, 1.04, 1.0], "no rank takes longer than 1.05x its peers (0.99x to 1.04x)"),
        ([1.0, 1.0, 1.0, 1.001], "no rank takes longer than 1.05x its peers (1.00x)"),
        ([1.0, 0.99, 1.06, 1.0], "the slowest is rank 2 (host "),
        ([0.76, 0.76, 1.32, 0.761], "1.32x its peers; the other ranks: 0.76x"),
        ([1.0, 1.48, 1.0, 1.52], "the slowest are ranks 1, 3, 1.48x to 1.52x their peers; the other ranks: 1.00x"),
        ([1.0, 1.2, 1.0, 1.52], "the slowest is rank 3 (host h, dp3), 1.52x its peers; the other ranks: 1.00x to"),
    ],
)
def test_all_ranks_about_as_slow_as_the_slowest_are_named_unless_it_is_noise(ratio: list[float], said: str) -> None:
    times = times_of(Stage.FORWARD_COMPUTE, [1.0] * 4, ratio, PROCESSOR)
    assert said in heat_map_summary(times, facts_of("dp=4"), Metric.RATIO)


@each_case(
    ("basis", "said"),
    [
        (WALL, "the slowest is the {} group of ranks 4-7, 1.24x its peers; the other ranks: 1.00x"),
        (PROCESSOR, "the slowest are dp1 (ranks 4-7), 1.23x to 1.24x their peers; the other ranks: 1.00x"),
    ],
)
@each_case(
    ("mesh", "named"),
    [("dp=2,tp=4", "tensor"), ("dp=2,ep=4", "expert"), ("dp=2,cp=2,tp=2", "context and tensor")],
)
def test_wall_time_names_a_group_and_processor_time_its_ranks(basis: str, said: str, mesh: str, named: str) -> None:
    times = times_of(Stage.FORWARD_COMPUTE, [1.0] * 8, [1.0] * 4 + [1.23, 1.23, 1.24, 1.23], basis)
    assert said.format(named) in heat_map_summary(times, facts_of(mesh), Metric.RATIO)


@each_case(
    ("ms", "said_ms", "said_share"),
    [
        (
            [40.0, 40.0, 60.0, 44.0],
            "pp2 takes 60.0 ms a step, the other pipeline stages 40.0 ms to 44.0 ms",
            "pp2 takes 30% of a step, the other pipeline stages 20% to 22%",
        ),
        ([40.0, 60.0], "pp1 takes 60.0 ms a step, pp0 40.0 ms", "pp1 takes 30% of a step, pp0 20%"),
        (
            [40.0, 40.2],
            "every pipeline stage takes about 40.1 ms a step",
            "every pipeline stage takes about 20% of a step",
        ),
    ],
)
def test_a_pipeline_stage_is_named_only_if_it_takes_longer(ms: list[float], said_ms: str, said_share: str) -> None:
    facts, times = facts_of(f"dp=2,pp={len(ms)}"), times_of(Stage.FORWARD_COMPUTE, [*ms, *ms])
    assert said_ms in heat_map_summary(times, facts, Metric.MILLISECONDS)
    assert said_share in heat_map_summary(times, facts, Metric.SHARE)
    assert "takes about" not in heat_map_summary(times, facts, Metric.RATIO)


@each_case(
    ("mesh", "waited_ms", "said"),
    [
        ("dp=2,pp=4", {5: 30.0, 6: 2.0}, "the other ranks of its group wait 30.0 ms a step for rank 5 (host"),
        ("dp=2,pp=4", {5: 30.0, 6: 2.0}, "15% of the step; at most 1% of the step for any other rank"),
        (
            "dp=2,pp=4",
            {4: 29.0, 5: 30.0},
            "groups wait 29.0 ms to 30.0 ms a step for ranks 4-5, 14% to 15% of the step; no wait for any other rank",
        ),
        (
            "pp=2,dp_shard=2,tp=2",
            {4: 30.0, 5: 30.0},
            "of their groups wait 30.0 ms a step for pp1 dp_shard0 (ranks 4-5), 15%",
        ),
        (
            "dp=2,cp=2,tp=2",
            {5: 30.0, 7: 30.0},
            "the other ranks of their group wait 30.0 ms a step for dp1 tp1 (ranks 5, 7), 15%",
        ),
        ("dp=8", {5: 30.0}, "grads-all-reduce: the other ranks wait 30.0 ms a step for rank 5"),
        ("dp=2,pp=4", {5: 1.0}, "no rank keeps others waiting; the longest wait is 1.0 ms a step"),
        ("dp=2,pp=4", {}, "no rank keeps others waiting"),
    ],
)
def test_the_ranks_that_enter_a_collective_last_are_named(mesh: str, waited_ms: dict[int, float], said: str) -> None:
    ms = [100.0 - waited_ms.get(rank, 0.0) for rank in range(8)]
    facts = facts_of(mesh)
    times = times_of(Stage.GRADS_ALL_REDUCE, ms, [each / 100.0 for each in ms], mask=facts.topology.replica_mask)
    assert said in heat_map_summary(times, facts, Metric.WAIT)


def test_only_one_program_of_a_job_with_roles_waits() -> None:
    facts = replace(facts_of("dp=4"), roles=("actor", "actor", "rollout", "rollout"))
    times = times_of(Stage.GRADS_ALL_REDUCE, [100.0, 70.0] * 2, [1.0, 0.7, 1.0, 1.0], mask=facts.topology.replica_mask)
    assert "the other ranks of its group wait 30.0 ms a step for rank 1" in heat_map_summary(times, facts, Metric.WAIT)


def test_equal_ranks_are_named_together_and_those_of_another_group_are_not_accused() -> None:
    """Ranks 6 and 7 wait for 4 and 5. The groups of ranks 0 to 3 are as fast, and nobody waits for them."""
    facts, stage = facts_of("dp=2,cp=2,tp=2"), Stage.CP_ALL_GATHER
    ms = [16.0, 15.9, 16.2, 16.1, 16.0, 16.01, 82.2, 82.1]
    partner = [2, 3, 0, 1, 6, 7, 4, 5]
    times = times_of(stage, ms)
    ratio = [ms[rank] / ms[partner[rank]] for rank in range(8)]
    waits = times_of(stage, ms, ratio, mask=facts.topology.mask("cp"))
    said = heat_map_summary(times, facts, Metric.MILLISECONDS, waits)
    assert "dp1 cp1 (ranks 6-7) spend the longest time in it (82.2 ms a step), the others 15.9 ms to 16.2 ms" in said
    assert "the other ranks of their context groups wait 66.1 ms to 66.2 ms a step for dp1 cp0 (ranks 4-5), 33%" in said
    assert " for " not in heat_map_summary(times, facts, Metric.MILLISECONDS)
    assert "each rank spends about 16.1 ms" in heat_map_summary(times_of(stage, [16.0, 16.1] * 4), facts, Metric.SHARE)
