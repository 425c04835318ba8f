"""The operation of a chosen span: its members, and which of them started last."""

from dataclasses import replace

import numpy as np

from telemetry.stages import Stage
from tests.each_case import each_case
from tests.ui.words_of_pages import texts
from ui.dashboard.components import written
from ui.dashboard.data import Reads
from ui.dashboard.pages.timeline.operation import Operation, operation_facts, operation_of
from ui.dashboard.pages.timeline.page import PAGE
from ui.dashboard.pages.timeline.selection import selection, spans
from ui.dashboard.pages.timeline.spans_buffer import NOT_COMPARABLE_NS
from ui.dashboard.view_state import Group, SpanKey, View, ViewState

STATE = ViewState(view=View.TIMELINE, run="made", group=Group.ALL, rank=5, step=20)


def made(
    waited_ns: list[int], *, start_ns: tuple[int, ...] = (0, 900, 300), bound_ns: int = 0, is_transfer: bool = False
) -> Operation:
    return Operation(
        is_transfer=is_transfer,
        rank=4 + np.arange(len(waited_ns)),
        start_ns=np.array(start_ns),
        waited_ns=np.array(waited_ns),
        bound_ns=bound_ns,
    )


@each_case(
    ("operation", "said"),
    [
        (made([900, 0, 600]), "rank 5, 900 ns after rank 4"),
        (made([0, 0], start_ns=(7, 7)), "both started at the same time"),
        (made([0, 0, 0], start_ns=(7, 7, 7)), "all started at the same time"),
        (made([900, 0, 0], start_ns=(0, 900, 900)), "ranks 5-6, 900 ns after rank 4"),
        (
            made([900, 0, 0], start_ns=(0, 900, 880), bound_ns=40),
            "ranks 5-6, 900 ns after rank 4: they differ by less than the error bound of the clocks (±40 ns)",
        ),
        (
            made([0, 0, 0], bound_ns=1000),
            "not known: all started within 900 ns, and the error bound of the clocks (±1 µs) is larger",
        ),
        (
            made([0, 0, 0], bound_ns=NOT_COMPARABLE_NS),
            "not known: the clocks of the hosts of these ranks are not aligned",
        ),
        (made([900, 0, 0]), "not known: a member ended before rank 5 started"),
    ],
)
def test_last_rank_to_start_is_named_only_if_all_others_waited(operation: Operation, said: str) -> None:
    assert dict(operation_facts(operation))["last to start"] == said


def test_transfer_has_no_last_rank_to_start() -> None:
    assert [*operation_facts(made([900, 0, 600], is_transfer=True))] == []


def test_the_slow_rank_is_the_last_in_a_collective_of_its_tensor_group(reads: Reads) -> None:
    shown = selection(STATE, reads)
    loaded = spans(shown, reads)
    gathers = np.flatnonzero((loaded.rank == 4) & (loaded.stage == Stage.TP_ALL_GATHER))
    found = [operation_of(int(row), shown, reads) for row in gathers]
    assert {operation.last for operation in found if operation} == {5}
    seq = int(loaded.seq[gathers[0]])
    said = " ".join(texts(written(PAGE.regions["details"].draw(replace(STATE, span=SpanKey(4, seq)), reads))))
    assert "members in the picture ranks 4-5" in said
    assert "last to start rank 5, " in said
    step = np.flatnonzero((loaded.rank == 4) & (loaded.stage == Stage.OPTIMIZER))
    assert operation_of(int(step[0]), shown, reads) is None
