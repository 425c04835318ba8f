"""From a finding to the view that shows it best, and what that view says."""

from dataclasses import replace

import numpy as np
import pytest
from dash import html

from diagnose.findings import Evidence, Finding, Kind, Role, Severity, StepWindow, Suspect
from diagnose.pipeline import Report
from diagnose.whatif.analysis import WhatIf
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.ui.few_spans import made_facts
from ui.dashboard.address import parse_search
from ui.dashboard.data.stage_times import PROCESSOR, WALL
from ui.dashboard.pages.findings import FindingLink, findings_list, links_to_views
from ui.dashboard.pages.heat_map.summary import heat_map_summary
from ui.dashboard.pages.runs.listing import _finding_in_words
from ui.dashboard.pages.whatif.analysis import cause_text
from ui.dashboard.records import RunFacts, StageTimes, StepTimes
from ui.dashboard.view_state import Group, Metric, ViewState

NUM_STEPS = 40


@pytest.fixture
def facts() -> RunFacts:
    """A pipeline of four stages, two replicas, forty steps of one second."""
    step = np.arange(NUM_STEPS)
    eight = np.full(NUM_STEPS, 8)
    steps = StepTimes(step=step, start_ns=step, duration_ns=np.full(NUM_STEPS, 1e9), num_ranks=eight, num_spans=eight)
    return replace(made_facts(8), topology=Topology(dp=2, pp=4), steps=steps)


def made_finding(kind: Kind, *ranks: int, stage: Stage = Stage.FORWARD_COMPUTE, **evidence: list[int]) -> Finding:
    told: Evidence = evidence
    return Finding(
        detector="made",
        kind=kind,
        severity=Severity.WARNING,
        suspects=tuple(Suspect(rank=rank, host="h", role=Role.INITIATING) for rank in ranks),
        stage=stage.label,
        window=StepWindow(first_step=0, last_step=NUM_STEPS - 1),
        seconds_lost=1.0,
        confidence=0.9,
        summary="it is slow",
        next_step="look",
        evidence=told,
    )


def analysed(by_pp: list[float]) -> WhatIf:
    return WhatIf(
        topology=Topology(dp=2, pp=4),
        rows=np.arange(1),
        num_left_out=0,
        num_operations=1,
        step_s=np.array([1.35]),
        ideal_step_s=np.array([1.0]),
        by_stage={},
        by_pp=np.array(by_pp),
        by_dp=np.ones(2),
        m_w=0.1,
        m_s=0.1,
    )


def names(found: list[FindingLink]) -> list[str]:
    return [way.name for way in found]


def leads_to(found: list[FindingLink], name: str) -> ViewState:
    return parse_search(next(way.address for way in found if way.name == name)).state


def test_a_slow_rank_shows_best_on_the_heat_map_beside_its_peers(facts: RunFacts) -> None:
    found = links_to_views(made_finding(Kind.COMPUTE_STRAGGLER, 5), facts)
    assert names(found) == ["heat map", "timeline", "cost"]
    assert leads_to(found, "heat map").metric is Metric.RATIO


def test_a_long_value_of_evidence_takes_the_whole_width(facts: RunFacts) -> None:
    finding = made_finding(Kind.NIC_FLAP, 5, steps=list(range(100)), ranks=[5])
    report = Report(
        run_id="run", attempt=0, window=finding.window, num_steps=40, num_ranks=8, findings=(finding,), losses=()
    )
    shown = findings_list(report, facts, below=lambda _: None)
    widths = {each.children[0].children: each.className for each in shown._traverse() if isinstance(each, html.Div)}
    assert widths == {"steps": "wide", "ranks": ""}


@pytest.mark.parametrize(("ranks", "words"), [((5,), "rank 5"), ((4, 5, 6), "ranks 4-6")])
def test_the_list_of_runs_names_one_rank_or_several(ranks: tuple[int, ...], words: str) -> None:
    assert _finding_in_words(made_finding(Kind.NIC_FLAP, *ranks)) == f"link lost: {words}, h"


def test_a_heavy_stage_shows_between_stages_and_never_as_a_ratio_within_one(facts: RunFacts) -> None:
    found = links_to_views(made_finding(Kind.STAGE_IMBALANCE), facts)
    assert names(found)[0] == "cost"
    assert leads_to(found, "heat map").metric is Metric.MILLISECONDS


def test_unequal_microbatches_show_best_with_the_replicas_side_by_side(facts: RunFacts) -> None:
    found = links_to_views(made_finding(Kind.DATA_IMBALANCE), facts)
    assert names(found)[0] == "timeline"
    assert leads_to(found, "timeline").group is Group.DP


def test_a_loss_that_went_wrong_leads_to_the_step_and_to_nobody_who_is_slow(facts: RunFacts) -> None:
    found = links_to_views(
        replace(made_finding(Kind.LOSS_ANOMALY), window=StepWindow(first_step=7, last_step=39)), facts
    )
    assert names(found) == ["timeline"]
    assert leads_to(found, "timeline").step == 7


def test_a_card_that_flaps_shows_best_on_its_host_and_in_a_step_that_stood_still(facts: RunFacts) -> None:
    found = links_to_views(made_finding(Kind.NIC_FLAP, 2, 3, stage=Stage.GRADS_ALL_REDUCE, steps=[12, 30, 99]), facts)
    assert names(found)[0] == "host"
    shown = leads_to(found, "timeline")
    assert (shown.step, shown.group, shown.rank) == (30, Group.DP, 2)


def test_milliseconds_name_the_pipeline_stage_that_takes_longest(facts: RunFacts) -> None:
    ms = np.tile([40.0, 40.0, 60.0, 44.0], (NUM_STEPS, 2))
    times = StageTimes(
        stage=Stage.FORWARD_COMPUTE,
        steps=np.arange(NUM_STEPS),
        ns=ms * 1e6,
        ratio=np.ones_like(ms),
        step_ns=np.full(NUM_STEPS, 200e6),
        basis="processor time",
    )
    said = heat_map_summary(times, facts, Metric.MILLISECONDS)
    assert "pp2 takes 60.0 ms a step, the other pipeline stages 40.0 ms to 44.0 ms" in said
    share = heat_map_summary(times, facts, Metric.SHARE)
    assert "pp2 takes 30% of a step, the other pipeline stages 20% to 22%" in share
    assert "pp2" not in heat_map_summary(times, facts, Metric.RATIO).partition("highest")[0]


@pytest.mark.parametrize(
    ("waited_ms", "said"),
    [
        ({5: 30.0, 6: 2.0}, "a step for rank 5 (host"),
        ({5: 30.0, 6: 2.0}, "15% of the step; at most 1% for any other rank"),
        ({4: 29.0, 5: 30.0}, "the other ranks wait 30.0 ms a step for ranks 4-5, 15% of the step; at most"),
        ({5: 1.0}, "no rank keeps others waiting; the longest wait is 1.0 ms a step"),
    ],
)
def test_those_who_come_last_to_a_collective_are_named(facts: RunFacts, waited_ms: dict[int, float], said: str) -> None:
    longest = np.full((NUM_STEPS, 8), 100e6)
    ns = longest - np.array([waited_ms.get(rank, 0.0) * 1e6 for rank in range(8)])
    times = StageTimes(
        stage=Stage.GRADS_REDUCE_SCATTER,
        steps=np.arange(NUM_STEPS),
        ns=ns,
        ratio=ns / longest,
        step_ns=np.full(NUM_STEPS, 200e6),
        basis=WALL,
    )
    assert said in heat_map_summary(times, facts, Metric.WAIT)


@pytest.mark.parametrize(
    ("basis", "said"),
    [
        (WALL, "the slowest is the {} group of ranks 4-7, 1.24x its peers; the other ranks: 1.00x to 1.00x"),
        (PROCESSOR, "the slowest is rank 6 (host"),
    ],
)
@pytest.mark.parametrize(
    ("mesh", "named"),
    [("dp=2,tp=4", "tensor"), ("dp=2,ep=4", "expert"), ("dp=2,cp=2,tp=2", "context and tensor")],
)
def test_time_on_the_wall_accuses_no_single_rank_of_a_group_inside_computes(
    facts: RunFacts, basis: str, said: str, mesh: str, named: str
) -> None:
    ratio = np.array([[1.0, 1.0, 1.0, 1.0, 1.23, 1.23, 1.24, 1.23]])
    times = StageTimes(
        stage=Stage.FORWARD_COMPUTE,
        steps=np.zeros(1),
        ns=ratio * 1e6,
        ratio=ratio,
        step_ns=np.full(1, 1e7),
        basis=basis,
    )
    grid = replace(facts, topology=Topology.parse(mesh))
    assert said.format(named) in heat_map_summary(times, grid, Metric.RATIO)


@pytest.mark.parametrize(
    ("by_pp", "said"),
    [
        ([1.0, 1.0, 1.3, 1.02], "Pipeline stage pp2 causes most of it"),
        ([1.25, 1.28, 1.3, 1.27], "All of them share it"),
        ([1.0, 1.0, 1.1, 1.0], "All of them share it"),
    ],
)
def test_a_stage_is_blamed_only_where_it_alone_makes_most_of_the_slowdown(by_pp: list[float], said: str) -> None:
    assert said in cause_text(analysed(by_pp))


def test_fewer_layers_are_no_remedy_for_a_slow_link() -> None:
    figures = replace(analysed([1.0, 1.3, 1.0, 1.0]), by_stage={"backward-compute": 1.05, "grads-reduce-scatter": 1.2})
    said = cause_text(figures)
    assert "pp1 causes most of it, on all its replicas, mostly in grads-reduce-scatter" in said
    assert "move layers" not in said
