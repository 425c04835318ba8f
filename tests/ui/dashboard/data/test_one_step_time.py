"""A run has one step time: the command, the list of runs and every page show the same figure of the same steps."""

import io
import re
from collections.abc import Iterator

import numpy as np
import pytest
from rich.console import Console

from diagnose.model.load import load_view
from diagnose.model.operations import step_time_ns
from diagnose.report import whatif_object, whatif_text
from diagnose.simulate.noise import RECORDED
from diagnose.whatif.conclude import conclude
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Reader, StoreReader
from telemetry.stores.queries import RankSteps, RunWallTimes, Samples
from tests.memory_store import memory_store
from tests.ui.remembering import Remembering
from tests.ui.simulated_run import store_simulated
from tests.ui.synthetic_run import SyntheticRun
from tests.ui.words_of_pages import said
from ui.dashboard.data import Reads
from ui.dashboard.data.run_rows import RunRow
from ui.dashboard.data.settings import ReadSettings
from ui.dashboard.data.stage_times import pooled_times, stage_times
from ui.dashboard.pages.runs.listing import run_list
from ui.dashboard.view_state import Clock, Metric, StepRange, View, ViewState
from ui.dashboard.wording import duration

NAME, NUM_STEPS = "uneven", 40
ALL = StepRange(0, NUM_STEPS - 1)


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    with memory_store() as store:
        store_simulated(store, NAME, "slow:rank=5,factor=1.4", num_steps=NUM_STEPS, noise=RECORDED)
        yield Remembering(StoreReader(store))


@pytest.fixture(scope="module")
def step_time(reader: Reader) -> float:
    """The mean step time in nanoseconds, computed from the spans."""
    ns = _spans(reader, range(8))
    assert ns.shape == (8, NUM_STEPS)
    assert (ns.max(axis=0) > 1.001 * ns.min(axis=0)).any(), "the ranks' spans of a step must differ"
    return float(ns.mean())


@pytest.fixture(scope="module")
def reads(reader: Reader) -> Reads:
    return Reads(reader)


def _spans(reader: Reader, ranks: range) -> np.ndarray:
    """Step spans, nanoseconds [ranks, steps]."""
    table = reader.read(RankSteps(run_id=NAME, attempt=0, ranks=tuple(ranks)))
    return np.reshape(table["duration_ns"].to_numpy(), (len(ranks), -1))


def _row(reads: Reads, run_id: str = NAME) -> RunRow:
    (row,) = [row for row in run_list(reads).rows if row.run_id == run_id]
    return row


def test_list_of_runs_and_overview_show_the_step_time(reads: Reads, step_time: float) -> None:
    row = _row(reads)
    assert row.step_time is not None
    assert row.step_time.mean == pytest.approx(step_time)
    assert f"Step time {duration(step_time)} mean of steps 0 to 39" in said(
        "numbers", reads, view=View.OVERVIEW, run=NAME
    )


def test_goodput_is_the_step_time_of_all_steps_divided_by_the_wall_time(reads: Reads, step_time: float) -> None:
    (wall,) = reads.ask_all_runs(RunWallTimes(run_ids=(NAME,))).to_pylist()
    assert _row(reads).goodput == pytest.approx(NUM_STEPS * step_time / wall["wall_ns"])


def test_mfu_is_the_work_of_the_steps_divided_by_their_step_time(
    reads: Reads, reader: Reader, step_time: float
) -> None:
    steps = reads.facts(ViewState(run=NAME)).steps
    mfu = reader.read(Samples(run_id=NAME, attempt=0, metrics=("mfu",)))["value"].to_numpy()
    (work_ns,) = np.unique((mfu * steps.duration_ns).round())
    row = _row(reads)
    assert row.mfu is not None
    assert row.mfu.mean == pytest.approx(work_ns / step_time, rel=1e-6)


@pytest.mark.parametrize("max_cells", [240_000, 0])
def test_heat_map_computes_shares_of_the_step_time(reader: Reader, step_time: float, max_cells: int) -> None:
    """For each step, and for a run that is too large for that."""
    reads = Reads(reader, settings=ReadSettings(max_cells=max_cells))
    facts = reads.facts(ViewState(run=NAME))
    times = stage_times(reads, facts, Stage.FORWARD_COMPUTE, Clock.WALL, ALL, Metric.SHARE)
    cells = pooled_times(reads, facts, times, Metric.SHARE, ALL)
    assert step_time_ns(times.step_ns) == pytest.approx(step_time)
    assert step_time_ns(cells.step_ns) == pytest.approx(step_time)


def test_what_if_page_and_command_show_the_step_time(reads: Reads, reader: Reader, step_time: float) -> None:
    found = conclude(load_view(reader, NAME, 0))
    assert len(found.steps) == NUM_STEPS
    assert whatif_object(found)["step_time_s"] == pytest.approx(step_time / 1e9)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(whatif_text(found))
    assert f"a step takes {step_time / 1e9:.3f} s: " in console.export_text()
    assert f"A step takes {duration(step_time)}; " in said("whatif-says", reads, view=View.WHATIF, run=NAME)
    assert re.search(
        rf"Step time {re.escape(duration(step_time))} mean of 40 steps Ideal",
        said("whatif-cards", reads, view=View.WHATIF, run=NAME),
    )


def test_list_of_runs_and_steps_agree_when_some_ranks_have_not_shipped_all_spans(embedded: EmbeddedStore) -> None:
    run = SyntheticRun(run_id=NAME)
    run.introduce(embedded)
    run.advance(embedded, 50)
    run.slow = {5: 3.0}
    run.advance(embedded, 7)
    run.advance(embedded, 3, late={0, 1, 2, 5})
    reads = Reads(StoreReader(embedded))
    row = _row(reads)
    assert row.step_time is not None
    steps = reads.facts(ViewState(run=NAME)).steps
    assert steps.num_ranks[-1] == 4
    assert row.step_time.mean == pytest.approx(steps.mean_ns(50, 60))
