"""Reports of runs that are so large that pages do not wait for the detectors."""

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from diagnose.pipeline import Report
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Query, StoreReader
from tests.deadline import until
from tests.ui.made_hang import STEP, S, evidence_rows
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.data import Reads
from ui.dashboard.data.asking import StoreQueries
from ui.dashboard.data.reports import NewestAnswers, Reports
from ui.dashboard.data.settings import ReadSettings
from ui.dashboard.pages.heat_map.picture import picture_of
from ui.dashboard.records import RunSummary
from ui.dashboard.serving.drawing import draw_canvas, draw_chart, draw_region, mark_canvas
from ui.dashboard.serving.live import freshness
from ui.dashboard.view_state import View, ViewState

NOTHING_IS_SMALL = 0
OVERVIEW, HEAT_MAP, TIMELINE, FLEET = (
    ViewState(view=view, run="made") for view in (View.OVERVIEW, View.HEAT_MAP, View.TIMELINE, View.FLEET)
)


class FailingReader:
    """Fails on every query."""

    def read(self, query: Query) -> pa.Table:
        raise AssertionError(query)


class HeldReports(Reports):
    """Reports whose detectors wait until the test releases them."""

    def __init__(self, queries: StoreQueries) -> None:
        super().__init__(queries, rank_steps_at_once=NOTHING_IS_SMALL)
        self.may_report = threading.Event()

    def _diagnose(self, run: RunSummary) -> Report:
        self.may_report.wait()
        return super()._diagnose(run)


class Held(Reads):
    """Reads with held reports."""

    def __init__(self, store: EmbeddedStore) -> None:
        super().__init__(StoreReader(store))
        self.reports = HeldReports(self)

    def release(self) -> None:
        assert isinstance(self.reports, HeldReports)
        self.reports.may_report.set()


@pytest.fixture
def held(store: EmbeddedStore, run: SyntheticRun) -> Held:
    return Held(store)


def text_of(name: str, state: ViewState, reads: Reads) -> str:
    drawn = draw_region(name, state, reads, by_clock=False)
    assert drawn is not None
    return str(drawn.make())


def test_no_page_waits_for_the_detectors_of_a_large_run(held: Held) -> None:
    assert "Comparing 8 ranks" in text_of("verdict", OVERVIEW, held)
    assert "Comparing 8 ranks" in text_of("findings", OVERVIEW, held)
    assert "Step time" in text_of("numbers", OVERVIEW, held)
    cells = draw_chart("cells", HEAT_MAP, held, None)
    assert cells is not None
    assert not cells.figure.layout.shapes
    painted = draw_canvas("timeline", TIMELINE, held, None)
    assert painted is not None
    assert painted.data is not None
    assert mark_canvas("timeline", TIMELINE, held) == []
    assert "gpu-01" in text_of("hosts", FLEET, held)
    held.release()


def test_page_is_redrawn_after_the_detectors_report_without_sending_the_cells_again(held: Held) -> None:
    before, _ = freshness(HEAT_MAP, held)
    without = draw_chart("cells", HEAT_MAP, held, None)
    held.release()
    until(lambda: freshness(HEAT_MAP, held)[0] != before, what="the report")
    assert without is not None
    marked = draw_chart("cells", HEAT_MAP, held, without.kind)
    assert marked is not None
    changed = [operation["location"] for operation in marked.figure.to_plotly_json()["operations"]]
    assert [place for place in changed if place[0] != "layout"] == [["data", 1]]  # the symbols of events
    again = draw_chart("cells", HEAT_MAP, held, None)
    assert again is not None
    assert len(again.figure.layout.shapes) == 1
    assert mark_canvas("timeline", TIMELINE, held) == [5]


@pytest.mark.parametrize("most", [{"max_own_operations": 100}, {"max_cells": 80}])
def test_heat_map_of_a_large_run_shows_compute_time_once_the_detectors_report(
    store: EmbeddedStore, most: dict[str, Any]
) -> None:
    without_cpu = SyntheticRun(run_id="walls", slow={5: 1.4}, with_cpu=False)
    without_cpu.introduce(store)
    without_cpu.advance(store, 40)
    reads = Reads(StoreReader(store), settings=ReadSettings(rank_steps_at_once=NOTHING_IS_SMALL, **most))
    state = replace(HEAT_MAP, run="walls", stage=Stage.FORWARD_COMPUTE)
    before = text_of("heat-says", state, reads)
    assert "the tensor group of ranks 4-5" in before
    until(lambda: reads.reports.of(reads.newest(state)) is not None, what="the report")
    assert "the slowest is rank 5 " in text_of("heat-says", state, reads)
    picture = picture_of(state, reads)
    assert picture is not None
    assert np.nanmedian(picture.cells.ratio, axis=0).argmax() == 5


def test_newest_answer_is_kept_for_its_period_although_new_data_arrived() -> None:
    now_s, answers = [0.0], NewestAnswers[int](30.0, clock_s=lambda: now_s[0])

    def asked(step: int) -> int | None:
        told = answers.get("run", step, lambda: step)
        return told and told.answer

    until(lambda: asked(1) == 1, what="the first answer")
    now_s[0] = 29.0
    assert asked(2) == 1
    now_s[0] = 30.0
    assert asked(2) == 1
    until(lambda: asked(2) == 2, what="the next answer")


def test_the_evidence_of_a_large_stall_is_read_in_the_background(store: EmbeddedStore) -> None:
    stuck = SyntheticRun(run_id="stuck", slow={})
    stuck.introduce(store)
    stuck.advance(store, STEP + 1)
    stuck.leave_evidence(store, evidence_rows(stuck.now_ns + 35 * S))
    reads = Reads(StoreReader(store), settings=ReadSettings(ranks_judged_at_once=7))
    page = ViewState(view=View.HANG, run="stuck")
    before, _ = freshness(page, reads)
    assert "Reading the evidence of 8 ranks" in text_of("hang-verdict", page, reads)
    until(lambda: freshness(page, reads)[0] != before, what="the verdict")
    assert "rank 5 is behind" in text_of("hang-verdict", page, reads)
    assert "rank 5 is behind" in text_of("verdict", replace(page, view=View.OVERVIEW), reads)


@pytest.mark.parametrize(("num_parts", "begins_s"), [(1, 2.0), (3, 5.0), (100, 10.0)])
def test_detectors_start_2_s_after_the_last_page_request_or_after_10_s(
    monkeypatch: pytest.MonkeyPatch, num_parts: int, begins_s: float
) -> None:
    """The parts send their requests at 0 s, 1.5 s, 3 s and so on."""
    now_s, reports = [100.0], Reports(StoreQueries(FailingReader()))
    parts_s = [100.0 + 1.5 * number for number in range(num_parts)]
    large = RunSummary(**{**dict.fromkeys(RunSummary.__dataclass_fields__, 0), "run_id": "r", "num_ranks": 10**6})

    def sleep(seconds: float) -> None:
        until_s = now_s[0] + seconds
        now_s[0] = min([one for one in parts_s if one > now_s[0]] + [until_s])
        if now_s[0] in parts_s:
            reports.of(large)

    monkeypatch.setattr("ui.dashboard.data.reports.time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep))
    monkeypatch.setattr(reports, "_newest_large", lambda _: None)
    reports.of(large)
    reports._wait_for_pages()
    assert now_s[0] == pytest.approx(100.0 + begins_s)
