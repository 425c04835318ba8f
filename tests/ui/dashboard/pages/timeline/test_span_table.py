"""The table of all spans of the timeline, and the order of the rows of the timeline."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from telemetry.stages import Stage
from tests.ui.few_spans import made_facts, made_spans
from tests.ui.words_of_pages import leads_to, texts
from ui.dashboard.components import written
from ui.dashboard.data import Reads
from ui.dashboard.pages.controls import after_controls
from ui.dashboard.pages.timeline.page import PAGE
from ui.dashboard.pages.timeline.row_order import ordered_ranks, shares_of_step
from ui.dashboard.pages.timeline.selection import displayed, selection, spans
from ui.dashboard.pages.timeline.span_table import COLUMNS, ROWS, sorted_rows
from ui.dashboard.serving.drawing import draw_canvas
from ui.dashboard.timeline_view import RankOrder, SpanColumn, TableView, TimelineView
from ui.dashboard.view_state import Group, View, ViewState

STATE = ViewState(view=View.TIMELINE, run="made", group=Group.ALL, rank=5, step=20)
HEADINGS = [column.title for column in COLUMNS.values()]


def with_table(table: TableView) -> ViewState:
    return replace(STATE, timeline=TimelineView(table=table))


def drawn(state: ViewState, reads: Reads) -> Any:
    return written(PAGE.regions["span-table"].draw(state, reads))


def rows_of(content: Any) -> Iterator[list[str]]:
    """The cells of each row of the body."""
    if isinstance(content, list):
        for part in content:
            yield from rows_of(part)
    elif isinstance(content, dict) and content["type"] == "Tr":
        cells = content["props"]["children"]
        if cells[0]["type"] == "Td":
            yield ["".join(texts(cell)) for cell in cells]
    elif isinstance(content, dict):
        yield from rows_of(content["props"].get("children"))


def test_span_table_is_hidden_until_it_is_requested(reads: Reads) -> None:
    number = len(spans(selection(STATE, reads), reads))
    assert texts(drawn(STATE, reads)) == [f"Show {number:,} spans as a table"]


def test_pages_of_the_table_contain_every_span_once_in_the_order_of_the_column(reads: Reads) -> None:
    loaded = spans(selection(STATE, reads), reads)
    longest_first = TableView(column=SpanColumn.DURATION, is_descending=True)
    found: list[list[str]] = []
    for page in range(1, -(-len(loaded) // ROWS) + 1):
        found += rows_of(drawn(with_table(replace(longest_first, page=page)), reads))
    at = HEADINGS.index("duration, ms")
    assert [float(row[at].replace(",", "")) for row in found] == pytest.approx(
        sorted((loaded.duration_ns / 1e6).tolist(), reverse=True), abs=1e-3
    )
    assert len(found) == len(loaded)


def test_page_number_beyond_the_end_shows_the_last_page(reads: Reads) -> None:
    number = len(spans(selection(STATE, reads), reads))
    content = drawn(with_table(TableView(page=9999)), reads)
    assert f"to {number:,} of {number:,}" in " ".join(texts(content))
    assert 0 < len([*rows_of(content)]) <= ROWS


def test_stage_in_the_table_links_to_its_span(reads: Reads) -> None:
    content = drawn(with_table(TableView()), reads)
    stages = [row[HEADINGS.index("stage")] for row in rows_of(content)]
    views = leads_to(content)
    assert 0 < stages.count("step") < ROWS
    assert len(views) == ROWS - stages.count("step")
    loaded = spans(selection(STATE, reads), reads)
    keys = {*zip(loaded.rank.tolist(), loaded.seq.tolist(), strict=True)}
    assert {view.span for view in views} <= keys
    assert {(view.step, view.timeline.table) for view in views} == {(20, TableView())}


def test_stages_and_hosts_are_sorted_by_name_and_ties_by_rank_and_start() -> None:
    spans_of_two = made_spans(
        (1, Stage.OPTIMIZER, 5, 1), (0, Stage.FORWARD_COMPUTE, 9, 1), (0, Stage.FORWARD_COMPUTE, 3, 1),
        (0, Stage.BACKWARD_COMPUTE, 1, 1),
    )  # fmt: skip
    facts = replace(made_facts(2), hosts=("node10", "node9"))
    by = {column: sorted_rows(spans_of_two, TableView(column=column), facts).tolist() for column in SpanColumn}
    assert by[SpanColumn.STAGE] == [3, 2, 1, 0]
    assert by[SpanColumn.HOST] == [0, 3, 2, 1]


def test_rows_are_ordered_by_compute_time_end_and_host(reads: Reads) -> None:
    shown = selection(STATE, reads)
    by_compute = ordered_ranks(RankOrder.COMPUTE, shown, reads)
    shares = {share.rank: share.compute_ns for share in shares_of_step(shown, reads)}
    assert by_compute[0] == 5
    assert [shares[rank] for rank in by_compute] == sorted(shares.values(), reverse=True)
    loaded = spans(shown, reads)
    steps = loaded.where(loaded.stage == Stage.STEP)
    ends = dict(zip(steps.rank.tolist(), steps.end_ns.tolist(), strict=True))
    by_end = ordered_ranks(RankOrder.END, shown, reads)
    assert [ends[rank] for rank in by_end] == sorted(ends.values(), reverse=True)
    assert ordered_ranks(RankOrder.HOST, shown, reads) == tuple(range(8))


def test_timeline_and_marked_area_use_the_selected_order_of_rows(reads: Reads) -> None:
    state = after_controls(STATE, {"rank-order": "compute"})
    painted = draw_canvas("timeline", state, reads, None)
    assert painted is not None
    assert painted.data is not None
    rows = painted.data["rows"]
    assert isinstance(rows, list)
    ranks = ordered_ranks(RankOrder.COMPUTE, selection(state, reads), reads)
    assert tuple(row["rank"] for row in rows) == ranks
    assert displayed(replace(state, pins=(6,)), ranks)[:2] == (6, 5)
    assert draw_canvas("timeline", STATE, reads, painted.kind).kind != painted.kind  # type: ignore[union-attr]
