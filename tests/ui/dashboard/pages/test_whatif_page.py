"""The what-if page: the cost of slow ranks, on runs in a store, without a browser."""

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace

import plotly.graph_objects as go
import pytest

from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Reader, StoreReader
from tests.deadline import until
from tests.ui.mesh_runs import put, simulated
from tests.ui.remembering import Remembering
from tests.ui.simulated_run import store_simulated
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.data import Reads
from ui.dashboard.data.cache import BackgroundAnswers, StillWorking
from ui.dashboard.data.settings import ReadSettings
from ui.dashboard.data.whatif import replay_request
from ui.dashboard.pages.controls import after_click
from ui.dashboard.pages.whatif.analysis import concluded, sentences
from ui.dashboard.records import GpuPrice
from ui.dashboard.serving.drawing import Plotted, draw_chart, draw_region
from ui.dashboard.serving.live import freshness
from ui.dashboard.view_state import LARGEST, Group, StepRange, View, ViewState

SLOW = ViewState(view=View.WHATIF, run="slow")
LONG_S = 60.0


@pytest.fixture(scope="module")
def slow(store: EmbeddedStore) -> Reader:
    """A run whose rank 5 is slow."""
    store_simulated(store, "slow", "slow:rank=5,factor=1.4")
    return Remembering(StoreReader(store))


@pytest.fixture(scope="module")
def analysed(slow: Reader) -> Reads:
    """Reads that wait for their results."""
    return patient(Reads(slow))


@pytest.fixture
def busy(slow: Reader, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Reads, threading.Event]]:
    """Reads whose results are delayed until the event is set, as for a run of many operations."""
    monkeypatch.setattr("ui.dashboard.data.whatif.FEW_OPERATIONS", 0)
    done, reads = threading.Event(), Reads(slow)
    reads.background = BackgroundAnswers(4, wait_s=0.0)
    with pytest.raises(StillWorking):
        reads.background.get("other", done.wait)
    yield reads, done
    done.set()


def patient(reads: Reads) -> Reads:
    reads.background = BackgroundAnswers(4, wait_s=LONG_S)
    return reads


def said(name: str, state: ViewState, reads: Reads) -> str:
    drawn = draw_region(name, state, reads, by_clock=False)
    assert drawn is not None
    return json.dumps(drawn.make(), ensure_ascii=False)


def plotted(name: str, state: ViewState, reads: Reads) -> Plotted:
    found = draw_chart(name, state, reads, None)
    assert found is not None
    return found


def figure(name: str, reads: Reads, state: ViewState = SLOW) -> go.Figure:
    found = plotted(name, state, reads).figure
    assert isinstance(found, go.Figure)
    return found


def test_the_cost_is_reported_in_one_sentence(analysed: Reads) -> None:
    text = said("whatif-says", SLOW, analysed)
    assert "if all workers were equally fast, it would take" in text
    assert "GPU hours of steps 0 to 39 are lost" in text
    assert "The slowest worker, dp1 pp0, causes most of the slowdown: check its ranks" in text


def test_a_finding_that_costs_more_than_the_whole_loss_is_explained(analysed: Reads) -> None:
    found = concluded(SLOW, analysed)
    assert found is not None
    (finding,) = found.found.report.findings
    assert finding.share_lost > found.figures.waste
    assert "have different baselines" in said("whatif-says", SLOW, analysed)
    cheaper = replace(found.found.report, findings=(replace(finding, share_lost=found.figures.waste),))
    request = replay_request(found.facts, SLOW, analysed)
    told = sentences(replace(found.found, report=cheaper), found.figures, found.facts, request, None)
    assert "baselines" not in str(told)


def test_cost_in_money_is_shown_when_a_gpu_price_is_set(slow: Reader) -> None:
    reads = patient(Reads(slow, settings=ReadSettings(gpu_price=GpuPrice(an_hour=3e6, currency="EUR"))))
    assert " EUR." in said("whatif-says", SLOW, reads)


def test_worker_of_the_slow_rank_has_the_highest_value_and_opens_its_timeline(analysed: Reads) -> None:
    (cells,) = figure("workers", analysed).data
    assert cells.z.argmax() == 1, "the first pipeline rank of the second replica"
    there = after_click(SLOW, "workers", {"customdata": cells.customdata[0, 1].tolist()})
    assert (there.view, there.rank) == (View.TIMELINE, 4)
    assert there.step in range(40)


def test_the_title_of_the_colours_of_workers_has_an_empty_line_above_the_highest_tick(analysed: Reads) -> None:
    (cells,) = figure("workers", analysed).data
    assert cells.colorbar.title.text.startswith("x ideal<br>")


def test_bar_of_a_replica_opens_its_pipeline_and_bar_of_a_pipeline_rank_its_replicas(analysed: Reads) -> None:
    (dp,), (pp,) = figure("by-dp", analysed).data, figure("by-pp", analysed).data
    assert dp.y[1] > 10 * dp.y[0]
    of_dp = after_click(SLOW, "by-dp", {"customdata": dp.customdata[1]})
    of_pp = after_click(SLOW, "by-pp", {"customdata": pp.customdata[1]})
    assert (of_dp.view, of_dp.group, of_dp.rank) == (View.TIMELINE, None, 4)
    assert (of_pp.view, of_pp.group, of_pp.rank) == (View.TIMELINE, Group.DP, 2)


def test_a_bar_of_a_stage_leads_to_its_heat_map(analysed: Reads) -> None:
    (bars,) = figure("by-stage", analysed).data
    assert bars.y[-1] == "backward-compute", "the worst is on top"
    there = after_click(SLOW, "by-stage", {"customdata": bars.customdata[-1]})
    assert (there.view, there.stage) == (View.HEAT_MAP, Stage.BACKWARD_COMPUTE)


def test_fixing_the_worst_worker_removes_most_of_the_slowdown(analysed: Reads) -> None:
    (curve,) = figure("fixing", analysed).data
    assert curve.x.tolist() == [0, 1, 2, 3, 4]
    assert curve.customdata[1][0] == "with dp1 pp0"
    assert curve.customdata[1][1] > 60
    assert curve.customdata[4][1] == pytest.approx(100)


def test_ideal_times_for_all_workers_save_what_the_page_says_is_lost(analysed: Reads) -> None:
    """The replayed steps are 0.5% longer than the measured ones."""
    shown = concluded(SLOW, analysed)
    assert shown is not None
    lost_s = (shown.found.step_s - shown.found.ideal_step_s) * len(shown.found.steps)
    (row,) = re.findall(r'slowest 4 workers made ideal.*?"([\d.]+) s"', said("whatif-gains", SLOW, analysed))
    assert row == f"{lost_s:.2f}"


def test_worst_parts_are_listed_in_a_table_with_links(analysed: Reads) -> None:
    text = said("whatif-worst", SLOW, analysed)
    assert "worker dp1 pp0" in text
    assert "4-5 on gpu-002" in text
    assert "view=heatmap&run=slow" in text
    assert "slowest worker made ideal" in said("whatif-gains", SLOW, analysed)


@pytest.fixture(scope="module")
def two_faults(store: EmbeddedStore) -> Reads:
    """Rank 2 is slow until step 69 of 80, and the host of the second pipeline stage loses its link twice."""
    faults = ("slow:rank=2,factor=1.2,last_step=69", "flap:host=gpu-001,seconds=4,times=2")
    put(store, simulated("two-faults", "titan", *faults, num_steps=80))
    return patient(Reads(StoreReader(store)))


def test_slow_transfers_are_named_beside_the_slow_worker_and_healthy_workers_are_not(two_faults: Reads) -> None:
    state = replace(SLOW, run="two-faults")
    text = said("whatif-says", state, two_faults)
    assert "Communication (backward-pp-comm) causes" in text
    assert "check the links between its ranks" in text
    assert "The slowest worker, " in text
    assert "unequal microbatches" not in text
    listed = said("whatif-worst", state, two_faults)
    assert listed.count('"worker ') == 1
    (cells,) = figure("workers", two_faults, state).data
    assert cells.zmin == pytest.approx(cells.z.min())
    assert cells.zmin > 1.02, "all workers share the slow transfers"


def test_what_if_names_the_steps_of_a_change_that_fixes_a_finding_of_fewer_steps(two_faults: Reads) -> None:
    gains = said("whatif-gains", replace(SLOW, run="two-faults"), two_faults)
    assert "rank 2 like its peers, steps 0 to 69" in gains
    assert "equal microbatches, steps" not in gains


def test_what_if_uses_the_range_of_steps_in_the_address(analysed: Reads) -> None:
    assert "steps 10 to 19" in said("whatif-says", replace(SLOW, steps=StepRange(10, 19)), analysed)
    assert "are not stored" in said("whatif-says", replace(SLOW, steps=StepRange(90, 99)), analysed)


def test_page_says_that_it_replays_until_the_result_is_ready(busy: tuple[Reads, threading.Event]) -> None:
    reads, _ = busy
    assert "Replaying steps 0 to 39" in said("whatif-says", SLOW, reads)
    assert "loading" in said("whatif-cards", SLOW, reads)
    assert plotted("workers", SLOW, reads).panel == "panel waiting"


def test_freshness_changes_when_the_result_is_ready(busy: tuple[Reads, threading.Event]) -> None:
    reads, done = busy
    said("whatif-says", SLOW, reads)
    before = freshness(SLOW, reads)
    assert freshness(SLOW, reads) == before
    done.set()
    until(lambda: freshness(SLOW, reads) != before, what="the answer")
    assert "would take" in said("whatif-says", SLOW, reads)


def test_large_run_replays_only_its_newest_steps_and_names_the_command(slow: Reader) -> None:
    each = replay_request(Reads(slow).facts(SLOW), SLOW, Reads(slow)).num_operations // 40
    text = said("whatif-says", SLOW, patient(Reads(slow, settings=ReadSettings(max_operations=7 * each))))
    assert "It shows the newest 7 of 40 steps" in text
    assert "rankscope diagnose whatif slow --attempt 0 --first-step 0 --last-step 39" in text
    too_large = said("whatif-says", SLOW, patient(Reads(slow, settings=ReadSettings(max_operations=each - 1))))
    assert "too many for this page" in too_large
    assert "rankscope diagnose whatif slow" in too_large


def test_run_without_a_slowdown_is_not_broken_down(store: EmbeddedStore) -> None:
    store_simulated(store, "even", num_steps=6)
    reads, state = patient(Reads(StoreReader(store))), replace(SLOW, run="even")
    assert "too small to name a cause" in said("whatif-says", state, reads)
    assert plotted("workers", state, reads).panel == "panel hidden"
    assert said("whatif-worst", state, reads) == "null"


def test_live_run_is_replayed_again_only_after_ten_new_steps(store: EmbeddedStore) -> None:
    live = SyntheticRun(run_id="at-work", slow={})
    live.introduce(store)
    ends = []
    for more in (25, 3, 2):
        live.advance(store, more)
        reads = Reads(StoreReader(store), wall_s=lambda: live.now_ns / 1e9)
        state = replace(SLOW, run="at-work")
        newest = replay_request(reads.facts(state), state, reads)
        open_end = replace(state, steps=StepRange(5, LARGEST))
        assert replay_request(reads.facts(state), open_end, reads).steps == StepRange(5, newest.steps.last)
        ends.append(newest.steps.last)
    assert ends == [19, 19, 29]
