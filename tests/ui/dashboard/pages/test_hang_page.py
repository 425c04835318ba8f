"""The contents of the hang view, without a browser."""

from dataclasses import replace

import pytest

from diagnose.findings import Kind
from diagnose.hang.evidence import HangEvidence
from diagnose.hang.verdict import HangVerdict, State
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.ui.counting import Counting
from tests.ui.made_hang import FAULT, HEADLINE, STEP, STUCK, S, evidence_rows, made_verdict
from tests.ui.synthetic_run import SyntheticRun
from tests.ui.words_of_pages import said
from ui.dashboard.data import Reads
from ui.dashboard.figures.hang import hops, path
from ui.dashboard.records import RunFacts
from ui.dashboard.serving.drawing import draw_chart, draw_page
from ui.dashboard.view_state import View, ViewState


class Judged(Reads):
    """Reads whose verdict is made by hand."""

    verdict: HangVerdict | None = made_verdict()

    def hang(self, facts: RunFacts) -> HangVerdict | None:
        return self.verdict


@pytest.fixture
def judged(store: EmbeddedStore, run: SyntheticRun) -> Judged:
    return Judged(StoreReader(store))


def test_hang_verdict_shows_its_headline_and_the_next_step(judged: Judged) -> None:
    words = said("hang-verdict", judged)
    for part in (HEADLINE, "hung-collective", "for 34 s", "confidence 93%", "Next: look at the data source", "was cut"):
        assert part in words


def test_rank_that_is_behind_is_shown_when_no_rank_is_selected(judged: Judged) -> None:
    words = said("rank", judged)
    for part in (
        f"Rank {STUCK}",
        "behind",
        "dp1 pp0 tp1",
        "gpu-03",
        "data-load, for 34 s",
        "next_batch (loader.py:88)",
    ):
        assert part in words
    assert FAULT in words
    assert "nccl-connect" in words
    assert "3 ranks directly: 1, 4, 7" in words
    assert "7 in total" in words
    assert "tp [4-5] 1 operation behind 40 40 41" in words


def test_panel_of_a_victim_shows_the_awaited_rank_and_the_data_flow(judged: Judged) -> None:
    words = said("rank", judged, rank=6)
    assert "rank 4 in recv #12 of pp [4, 6]" in words
    assert "forward pp0 ⋯ 4 → pp1 6" in words
    assert "backward pp0 ⋯ 4 ← pp1 6" in words


def test_the_chain_of_a_victim_names_every_hop(judged: Judged) -> None:
    words = said("chain", judged, rank=2)
    for part in ("reduce_scatter #9", "recv #12", "all_gather #41", "never entered", "no partner", "at next_batch"):
        assert part in words
    places = ("rank 2 dp0 pp1 tp0", "rank 6 dp1 pp1 tp0", "rank 4 dp1 pp0 tp0", "rank 5 dp1 pp0 tp1")
    at = [words.index(place) for place in places]
    assert at == sorted(at)


def test_equal_stacks_are_shown_once_with_their_ranks(judged: Judged) -> None:
    words = said("stacks", judged)
    assert "▶ 1 rank: 5" in words
    assert "7 ranks: 0-4, 6-7" in words


def test_overview_shows_the_stall_first_and_lists_it_once(judged: Judged) -> None:
    assert HEADLINE in said("verdict", judged, view=View.OVERVIEW)
    assert "Show hang view" in said("verdict", judged, view=View.OVERVIEW)
    findings = said("findings", judged, view=View.OVERVIEW)
    assert findings.count(HEADLINE) == 1
    assert HEADLINE in findings
    assert "compute-straggler" in findings


def test_overview_of_a_stall_shows_its_duration_and_no_lost_time(judged: Judged) -> None:
    numbers = said("numbers", judged, view=View.OVERVIEW)
    assert "Stalled 1 min 6 s until the job ended" in numbers
    assert "Time lost" not in numbers


def test_hang_view_of_a_job_without_a_stall_says_that_none_was_recorded(reads: Reads) -> None:
    notice = said("hang-verdict", reads)
    assert "No stall was recorded" in notice
    assert "The newest data is from 20" in notice, "no agent watched this run, so there is no heartbeat"
    for region in ("grid-title", "choose-rank", "chain", "rank", "stacks"):
        assert said(region, reads) == ""


def test_ranks_without_evidence_are_named_and_can_be_selected(judged: Judged) -> None:
    whole = made_verdict()
    ranks = {rank: one for rank, one in whole.evidence.ranks.items() if rank != 3}
    judged.verdict = replace(
        whole,
        evidence=replace(whole.evidence, ranks=ranks),
        states={**whole.states, 3: State.MISSING},
    )
    assert "1 rank without evidence: 3" in said("hang-verdict", judged)
    assert "No evidence from this rank" in said("rank", judged, rank=3)


def test_verdict_with_insufficient_evidence_is_drawn(judged: Judged) -> None:
    nothing = HangEvidence(world_size=8, groups=(), ranks={})
    judged.verdict = HangVerdict(
        evidence=nothing,
        kind=Kind.INSUFFICIENT_EVIDENCE,
        initiating=(),
        states=dict.fromkeys(range(8), State.MISSING),
        waits={},
        headline="too little is known",
        next_step="",
        confidence=0.4,
    )
    assert "info: not enough evidence (insufficient-evidence)" in said("hang-verdict", judged)
    for region in ("grid-title", "chain", "rank", "stacks"):
        assert "could not be drawn" not in said(region, judged)
    plotted = draw_chart("grid", ViewState(view=View.HANG, run="made"), judged, None)
    assert plotted is not None
    assert plotted.panel == "panel"


def test_unknown_rank_is_reported(judged: Judged) -> None:
    assert "There is no rank 64" in said("rank", judged, rank=64)


def test_stored_evidence_is_read_once_and_again_when_more_arrives(store: EmbeddedStore) -> None:
    reader, now_s = Counting(StoreReader(store)), [2e9]
    reads = Reads(reader, wall_s=lambda: now_s[0])
    run = SyntheticRun(run_id="stuck", slow={})
    run.introduce(store)
    run.advance(store, STEP + 1)
    state = ViewState(view=View.HANG, run="stuck")
    assert reads.hang(reads.facts(state)) is None
    assert reader.asked["Evidence"] == 0
    run.leave_evidence(store, evidence_rows(run.now_ns + 35 * S))
    for _ in range(3):
        now_s[0] += 1.0
        verdict = reads.hang(reads.facts(state))
    assert verdict is not None
    assert verdict.initiating == (STUCK,)
    assert path(hops(verdict, 2)) == (2, 6, 4, STUCK)
    reads.reports.of(reads.facts(state).summary)
    assert reader.asked["Evidence"] == 1
    run.leave_evidence(store, evidence_rows(run.now_ns + 65 * S))
    now_s[0] += 1.0
    reads.hang(reads.facts(state))
    assert reader.asked["Evidence"] == 2


def test_unreadable_evidence_is_reported_and_does_not_hide_findings_of_other_views(store: EmbeddedStore) -> None:
    run = SyntheticRun(run_id="damaged")
    run.introduce(store)
    run.advance(store, 20)
    row = {"rank": 1, "at_ns": run.now_ns + 1, "kind": "state", "body": "{"}
    run.leave_evidence(store, [row])
    reads = Reads(StoreReader(store))
    assert "no readable records of a stall" in said("hang-verdict", reads, run="damaged")
    assert "rank 5" in said("verdict", reads, view=View.OVERVIEW, run="damaged")


def test_job_that_continued_after_a_stall_has_no_hang_verdict(store: EmbeddedStore) -> None:
    now_s = [2e9]
    reads = Reads(StoreReader(store), wall_s=lambda: now_s[0])
    run = SyntheticRun(run_id="recovered", slow={})
    run.introduce(store)
    run.advance(store, STEP)
    run.leave_evidence(store, evidence_rows(run.now_ns + 36 * S))
    state = ViewState(view=View.HANG, run="recovered")
    assert reads.hang(reads.facts(state)) is not None
    run.stand_still(60)
    run.advance(store, 1)
    now_s[0] += 1.0
    assert reads.hang(reads.facts(state)) is None


def test_stall_before_the_first_step_is_shown_instead_of_waiting_for_the_step(store: EmbeddedStore) -> None:
    run = SyntheticRun(run_id="never-began")
    run.introduce(store)
    run.leave_evidence(store, evidence_rows(run.now_ns + 1))
    reads = Reads(StoreReader(store))
    assert draw_page(ViewState(view=View.OVERVIEW, run="never-began"), reads).key.endswith("/no-step-stalled")
    assert draw_page(ViewState(view=View.HANG, run="never-began"), reads).key.endswith("/page")
