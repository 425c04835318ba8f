"""The spans as the canvas receives them."""

import base64

import numpy as np

from telemetry.stages import Stage
from tests.each_case import each_case
from tests.ui.few_spans import buffer_of, made_spans
from ui.dashboard.pages.timeline.ideal_strip import NARROW, packed, tick_of
from ui.dashboard.pages.timeline.selection import MAX_SPANS, fit


def unpacked(column: dict[str, str]) -> list[int]:
    values: list[int] = np.frombuffer(base64.b64decode(column["bdata"]), dtype="<" + column["dtype"]).tolist()
    return values


def columns_of(data: dict[str, object], part: str = "columns") -> dict[str, list[int]]:
    columns = data[part]
    assert isinstance(columns, dict)
    return {name: unpacked(column) for name, column in columns.items()}


def test_buffer_contains_every_span_once_in_the_order_of_row_lane_and_start() -> None:
    spans = made_spans(
        (7, Stage.STEP, 1000, 900),
        (7, Stage.TP_ALL_GATHER, 1300, 50),
        (7, Stage.FORWARD_COMPUTE, 1100, 400),
        (3, Stage.FORWARD_COMPUTE, 1010, 400),
        seq=[100, 101, 102, 2**40],
    )
    data = buffer_of(spans, {7: "g", 3: "c"})
    columns = columns_of(data)
    assert data["count"] == 3
    assert columns["stage"] == [Stage.FORWARD_COMPUTE, Stage.TP_ALL_GATHER, Stage.FORWARD_COMPUTE]
    assert columns["row"] == [0, 0, 1]
    assert columns["start"] == [100, 300, 10]
    assert columns["seq"] == [2, 1, 0]
    assert data["rows"] == [
        {"rank": 7, "name": "g", "first_seq": "100"},
        {"rank": 3, "name": "c", "first_seq": str(2**40)},
    ]
    assert columns_of(data, "steps") == {"row": [0], "start": [0], "duration": [900]}


def test_buffer_contains_idle_gaps_with_their_cause() -> None:
    spans = made_spans((0, Stage.STEP, 0, 1000), (0, Stage.FORWARD_COMPUTE, 0, 300), (0, Stage.BACKWARD_RECV, 500, 500))
    data = buffer_of(spans, {0: "a"})
    assert columns_of(data, "gaps") == {"row": [0], "start": [300], "duration": [200], "cause": [0]}
    assert data["causes"] == ["pipeline bubble between forward-compute and backward-recv"]


@each_case(("length_ns", "tick_ns"), [(0, 1), (2**32 - 1, 1), (2**32, 10), (3600 * 10**9, 1000)])
def test_tick_is_the_finest_that_fits_into_32_bits(length_ns: int, tick_ns: int) -> None:
    assert tick_of(length_ns) == tick_ns


def test_adjacent_spans_of_a_long_step_do_not_overlap_after_rounding() -> None:
    spans = made_spans((0, Stage.FORWARD_COMPUTE, 5, 10**10 + 6), (0, Stage.BACKWARD_COMPUTE, 10**10 + 11, 999))
    data = buffer_of(spans, {0: "a"})
    columns = columns_of(data)
    assert data["tick_ns"] == 10
    assert columns["start"][0] + columns["duration"][0] == columns["start"][1]


@each_case("values", [[0, 255], [-1, 100], [0, 256], [-1, 40_000], [0, 2**32 - 1], [-5, 2**31 - 1], []])
def test_packed_column_has_the_narrowest_type_for_its_values(values: list[int]) -> None:
    column = packed(np.array(values, dtype=np.int64))
    assert unpacked(column) == values
    narrower = [one for one in NARROW if np.dtype(one).itemsize < np.dtype(column["dtype"]).itemsize]
    low, high = min(values, default=0), max(values, default=0)
    assert not any(np.iinfo(one).min <= low and high <= np.iinfo(one).max for one in narrower)


def test_buffer_of_the_maximum_number_of_spans_stays_below_the_size_limit() -> None:
    draw = np.random.default_rng(3)
    stages = [stage for stage in Stage if stage is not Stage.STEP]
    rows = [
        (int(draw.integers(0, 8)), stages[int(draw.integers(len(stages)))], int(draw.integers(0, 4 * 10**9)), 10_000)
        for _ in range(MAX_SPANS)
    ]
    peers = draw.integers(0, 12_288, MAX_SPANS).tolist()
    spans = made_spans(*rows, peer=peers, op_seq=draw.integers(1, 30_000, MAX_SPANS).tolist())
    columns = buffer_of(spans, {rank: f"dp{rank}" for rank in range(8)})["columns"]
    assert isinstance(columns, dict)
    assert sum(len(column["bdata"]) for column in columns.values()) < 1_500_000


def test_shortest_spans_are_left_out_and_counted_when_there_are_too_many() -> None:
    spans = made_spans(*[(0, Stage.FORWARD_COMPUTE, 10 * at, at + 1) for at in range(100)])
    drawn = fit(spans, limit=60)
    assert (len(drawn.spans), drawn.num_hidden, drawn.longest_hidden_ns) == (60, 40, 40)
    assert drawn.spans.start_ns.tolist() == sorted(drawn.spans.start_ns.tolist())


def test_buffer_of_a_step_without_spans_is_empty() -> None:
    data = buffer_of(made_spans(), {0: "a"})
    assert (data["count"], data["end"]) == (0, 0)
    assert columns_of(data)["start"] == []
