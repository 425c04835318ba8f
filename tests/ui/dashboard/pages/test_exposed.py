"""Exposed communication on the pages: the same figure as in ``rankscope diagnose``."""

import json

import numpy as np
import pytest
from plotly.utils import PlotlyJSONEncoder

from telemetry.stages import Stage
from ui.dashboard.data import Reads
from ui.dashboard.data.stage_times import stage_times
from ui.dashboard.defaults import chosen_stage, chosen_steps
from ui.dashboard.pages.heat_map.says import draw_says
from ui.dashboard.pages.overview.page import draw_numbers
from ui.dashboard.view_state import Clock, Metric, View, ViewState


def test_the_overview_shows_the_axis_with_most_exposed_communication_and_all_axes(reads: Reads) -> None:
    report = reads.reports.of(reads.facts(ViewState(run="made")).summary)
    assert report is not None
    assert set(report.exposed) == {"dp", "pp", "tp"}
    axis, most = max(report.exposed.items(), key=lambda item: item[1].share)
    drawn = json.dumps(draw_numbers(ViewState(view=View.OVERVIEW, run="made"), reads), cls=PlotlyJSONEncoder)
    assert f'"{axis} {most.share:.1%}"' in drawn
    assert f"of {report.window.in_words} (axes can overlap)" in drawn
    assert all(f"{name} {figure.share:.1%}" in drawn for name, figure in report.exposed.items())


def test_the_heat_map_shows_the_exposed_time_of_the_axis_of_its_stage(reads: Reads) -> None:
    state = ViewState(view=View.HEAT_MAP, run="made", stage=Stage.TP_ALL_GATHER, metric=Metric.EXPOSED)
    facts = reads.facts(state)
    report = reads.reports.of(facts.summary)
    assert report is not None
    steps = chosen_steps(state, facts)
    times = stage_times(reads, facts, Stage.TP_ALL_GATHER, Clock.WALL, steps, Metric.EXPOSED)
    assert float(np.nanmean(times.ns)) / 1e9 == pytest.approx(report.exposed["tp"].seconds, rel=0.05)
    assert "tp: most exposed communication on" in str(draw_says(state, reads))


def test_exposed_time_of_a_compute_stage_shows_the_first_communication(reads: Reads) -> None:
    state = ViewState(view=View.HEAT_MAP, run="made", stage=Stage.FORWARD_COMPUTE, metric=Metric.EXPOSED)
    assert chosen_stage(state, reads.facts(state)).label != Stage.FORWARD_COMPUTE.label
    assert "most exposed communication on" in str(draw_says(state, reads))
