"""A run whose agents ship no data: every page shows the sentence of the command, and claims no reason."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from diagnose.model.run_state import heard_of
from diagnose.pipeline import diagnose_run
from diagnose.report import report_text
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.ui.synthetic_run import SyntheticRun
from tests.ui.words_of_pages import said
from ui.dashboard.address import Parsed
from ui.dashboard.data import Reads
from ui.dashboard.serving.drawing import draw_frame, draw_page
from ui.dashboard.view_state import View, ViewState

S = 1_000_000_000


def shipped_until_killed(store: EmbeddedStore, run_id: str, num_steps: int, *, ended: bool = False) -> int:
    """Store a run whose agents send one heartbeat and then stop. Return the time a minute later, in nanoseconds."""
    run = SyntheticRun(run_id=run_id, slow={})
    run.introduce(store)
    run.advance(store, num_steps)
    run.beat(store, at_ns=run.now_ns, ended=ended)
    return run.now_ns + 60 * S


def reads_at(store: EmbeddedStore, now_ns: int) -> Reads:
    return Reads(StoreReader(store), wall_s=lambda: now_ns / 1e9)


def printed(store: EmbeddedStore, run_id: str, now_ns: int) -> str:
    """The sentence of `rankscope diagnose`."""
    reader, out = StoreReader(store), io.StringIO()
    report = replace(diagnose_run(reader, run_id, 0), heard=heard_of(reader, run_id, 0, now_ns))
    Console(file=out, width=200).print(report_text(report))
    (sentence,) = (line for line in out.getvalue().splitlines() if line.startswith("not shipping: "))
    return sentence


@pytest.mark.parametrize("num_steps", [0, 12])
def test_every_page_of_a_run_that_ships_no_data_shows_the_sentence_of_the_command_once(
    store: EmbeddedStore, num_steps: int
) -> None:
    run_id = f"silent-{num_steps}"
    now_ns = shipped_until_killed(store, run_id, num_steps)
    reads, sentence = reads_at(store, now_ns), printed(store, run_id, now_ns)
    for view in View:
        if view is View.RUNS:
            continue
        state = ViewState(view=view, run=run_id)
        _, notes, _ = draw_frame(Parsed(state=state, notes=()), reads)
        page = json.dumps([notes.make(), draw_page(state, reads).make()])
        assert page.count(sentence[1:]) == 1, view
        assert "check that agents run" in page, view
        assert "No step recorded yet" not in page, view


def test_pages_of_a_run_that_ships_no_data_do_not_claim_that_it_is_not_stalled(store: EmbeddedStore) -> None:
    reads = reads_at(store, shipped_until_killed(store, "unseen", 12))
    assert "No stall is known" in said("hang-verdict", reads, run="unseen")
    assert "The job is not stalled" not in said("grid-says", reads, view=View.GRID, run="unseen")
    assert "8 running, 0 ended normally, 0 lost (last data: 20" in said(
        "events", reads, view=View.OVERVIEW, run="unseen"
    )


def test_overview_of_a_run_that_ended_before_its_first_step_uses_the_past_tense(store: EmbeddedStore) -> None:
    reads = reads_at(store, shipped_until_killed(store, "short", 0, ended=True))
    page = json.dumps(draw_page(ViewState(view=View.OVERVIEW, run="short"), reads).make())
    assert "No step was recorded" in page
    assert "The last data of the run arrived at 20" in page
    assert "when the first step ends" not in page
