"""Links from a finding to views, the best view first, and the summaries on these views."""

from dataclasses import replace

import numpy as np
import pytest
from dash import html

from diagnose.findings import Evidence, Finding, Kind, Role, Severity, StepWindow, Suspect
from diagnose.model.marks import Mark
from diagnose.pipeline import Report
from diagnose.whatif.analysis import WhatIf
from diagnose.whatif.conclude import Conclusion
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.each_case import each_case
from tests.ui.few_spans import made_facts
from ui.dashboard.address import parse_search
from ui.dashboard.pages.findings import FindingLink, findings_list, links_to_views
from ui.dashboard.pages.runs.listing import _finding_in_words
from ui.dashboard.pages.whatif.analysis import cause_text, link_losses
from ui.dashboard.records import RunFacts, StepTimes
from ui.dashboard.view_state import Clock, Form, Group, Metric, SpanKey, StepRange, View, ViewState

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


EXAMINED = StepWindow(first_step=0, last_step=NUM_STEPS - 1)


def links(finding: Finding, facts: RunFacts, state: ViewState | None = None) -> list[FindingLink]:
    """``state``: the state of the page. By default nothing is selected there."""
    return links_to_views(finding, EXAMINED, facts, state or ViewState())


def names(found: list[FindingLink]) -> list[str]:
    return [way.name for way in found]


def leads_to(found: list[FindingLink], name: str) -> ViewState:
    return parse_search(next(way.address for way in found if way.name == name)).state


def test_first_link_of_a_slow_rank_opens_the_heat_map_of_ratios(facts: RunFacts) -> None:
    found = links(made_finding(Kind.COMPUTE_STRAGGLER, 5), facts)
    assert names(found) == ["heat map", "timeline", "cost"]
    assert leads_to(found, "heat map").metric is Metric.RATIO


ELSEWHERE = ViewState(
    run="run",
    attempt=0,
    metric=Metric.WAIT,
    clock=Clock.WALL,
    form=Form.BODY,
    steps=StepRange(0, 3),
    step=2,
    group=Group.ALL,
    rank=1,
    span=SpanKey(1, 7),
    pins=(1, 2),
)


def test_links_set_the_known_values_of_a_finding_and_keep_other_selections(facts: RunFacts) -> None:
    began = StepWindow(first_step=25, last_step=39)
    finding = replace(made_finding(Kind.COMPUTE_STRAGGLER, 5, stage=Stage.OPTIMIZER), window=began)
    found = links(finding, facts, ELSEWHERE)
    knows = replace(ELSEWHERE.at_rank(5).at_step(None), stage=Stage.OPTIMIZER, steps=StepRange(5, 104))
    known = replace(knows, metric=Metric.RATIO, host="h", run=facts.summary.run_id, attempt=facts.summary.attempt)
    assert leads_to(found, "heat map") == replace(known, view=View.HEAT_MAP, clock=Clock.OWN)
    timeline = leads_to(found, "timeline")
    assert timeline == replace(known, view=View.TIMELINE, group=Group.PP, step=timeline.step)
    assert timeline.step in range(25, 40)
    assert leads_to(found, "cost") == replace(known, view=View.WHATIF, steps=StepRange(25, 39))


def test_finding_without_a_known_onset_links_to_the_newest_steps(facts: RunFacts) -> None:
    found = links(made_finding(Kind.COMPUTE_STRAGGLER, 5), facts, ELSEWHERE)
    assert leads_to(found, "heat map").steps is None


def test_long_evidence_value_takes_the_whole_width(facts: RunFacts) -> None:
    finding = made_finding(Kind.NIC_FLAP, 5, steps=list(range(100)), ranks=[5])
    report = Report(
        run_id="run", attempt=0, window=finding.window, num_steps=40, num_ranks=8, findings=(finding,), losses=()
    )
    shown = findings_list(report, facts, ViewState(), below=lambda _: None)
    widths = {each.children[0].children: each.className for each in shown._traverse() if isinstance(each, html.Div)}
    assert widths == {"steps": "wide", "ranks": ""}


@pytest.mark.parametrize(("ranks", "words"), [((5,), "rank 5"), ((4, 5, 6), "ranks 4-6")])
def test_the_list_of_runs_names_one_rank_or_several(ranks: tuple[int, ...], words: str) -> None:
    assert _finding_in_words(made_finding(Kind.NIC_FLAP, *ranks)) == f"link lost: {words}, h"


def test_stage_imbalance_links_to_its_cost_first_and_to_the_heat_map_in_milliseconds(facts: RunFacts) -> None:
    found = links(made_finding(Kind.STAGE_IMBALANCE), facts)
    assert names(found)[0] == "cost"
    assert leads_to(found, "heat map").metric is Metric.MILLISECONDS


def test_first_link_of_a_data_imbalance_opens_the_timeline_of_the_replicas(facts: RunFacts) -> None:
    found = links(made_finding(Kind.DATA_IMBALANCE), facts)
    assert names(found)[0] == "timeline"
    assert leads_to(found, "timeline").group is Group.DP


def test_loss_anomaly_links_only_to_the_timeline_of_its_first_step(facts: RunFacts) -> None:
    found = links(replace(made_finding(Kind.LOSS_ANOMALY), window=StepWindow(first_step=7, last_step=39)), facts)
    assert names(found) == ["timeline"]
    assert leads_to(found, "timeline").step == 7


def test_nic_flap_links_to_its_host_first_and_to_the_timeline_of_a_stalled_step(facts: RunFacts) -> None:
    found = links(made_finding(Kind.NIC_FLAP, 2, 3, stage=Stage.GRADS_ALL_REDUCE, steps=[12, 30, 99]), facts)
    assert names(found)[0] == "host"
    shown = leads_to(found, "timeline")
    assert (shown.step, shown.group, shown.rank) == (30, Group.DP, 2)


@each_case(
    ("by_pp", "said"),
    [
        ([1.0, 1.0, 1.3, 1.02], "Pipeline stage pp2 causes most of the slowdown"),
        ([1.25, 1.28, 1.3, 1.27], "The slowdown affects all workers"),
        ([1.0, 1.0, 1.1, 1.0], "The slowdown affects all workers"),
    ],
)
def test_cause_text_names_a_pipeline_stage_only_if_it_causes_most_of_the_slowdown(
    by_pp: list[float], said: str
) -> None:
    assert said in cause_text(analysed(by_pp))


def test_cause_text_does_not_suggest_moving_layers_for_a_slow_link() -> None:
    figures = replace(analysed([1.0, 1.3, 1.0, 1.0]), by_stage={"backward-compute": 1.05, "grads-reduce-scatter": 1.2})
    said = cause_text(figures)
    assert "pp1 causes most of the slowdown, on all its replicas, mostly in grads-reduce-scatter" in said
    assert "move layers" not in said


@pytest.mark.parametrize(("held_s", "said"), [(0.2, "h stalled the job for 0.2 s, of 0.4 s that are lost"), (0.02, "")])
def test_cause_includes_link_losses_only_if_they_are_a_large_part_of_the_lost_time(held_s: float, said: str) -> None:
    """A collective inside compute is no communication stage: without this, compute would be the only cause."""
    lost = Mark(
        name="link-down", host="h", device="d", at_ns=1, seconds=1, count=1, lasts=False, held_s=held_s, stretched=()
    )
    report = Report(run_id="run", attempt=0, window=EXAMINED, num_steps=1, num_ranks=8, findings=(), marks=(lost,))
    figures = analysed([1.0, 1.3, 1.0, 1.0])
    found = Conclusion(report=report, figures=figures, steps=np.arange(1), replay_error=0.0, step_s=1.35)
    assert said in link_losses(found, figures)
    assert bool(said) is bool(link_losses(found, figures))
