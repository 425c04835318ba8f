"""Spans are matched to operations by recorded numbers or by order."""

import numpy as np

from diagnose.model.operations import SpanColumns
from diagnose.model.partners import NOBODY, NOT_NUMBERED, operation_places, recorded_numbers, whole_operations
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.trace.made_columns import made_columns

PIPELINE = Topology(pp=3)
SEND, RECV, EMBEDDING = Stage.FORWARD_SEND, Stage.FORWARD_RECV, Stage.EMBEDDING_GRADS_ALL_REDUCE


def whole(spans: SpanColumns, topology: Topology) -> list[list[int]]:
    return [rows for size in whole_operations(spans, operation_places(spans, topology)) for rows in size.tolist()]


def test_send_and_its_receive_share_a_place_and_the_backward_pair_has_another() -> None:
    spans = made_columns(
        (0, SEND, 0, 2), (1, RECV, 1, 3), (1, Stage.BACKWARD_SEND, 4, 5), (0, Stage.BACKWARD_RECV, 4, 6)
    )
    place = operation_places(spans, PIPELINE).place
    assert place[0] == place[1] != place[2] == place[3]


def test_spans_without_a_partner_in_the_grid_have_no_place() -> None:
    spans = made_columns((2, SEND, 0, 2), (0, RECV, 1, 3), (3, RECV, 1, 3), (0, Stage.TP_ALL_GATHER, 0, 1))
    assert operation_places(spans, PIPELINE).place.tolist() == [NOBODY] * 4


def test_first_and_last_pipeline_stage_share_the_embedding_reduction() -> None:
    spans = made_columns((0, EMBEDDING, 0, 9), (1, EMBEDDING, 0, 9), (2, EMBEDDING, 3, 9))
    places = operation_places(spans, PIPELINE)
    assert places.place[0] == places.place[2] != places.place[1] == NOBODY
    assert whole(spans, PIPELINE) == [[0, 2]]


def test_operations_with_different_numbers_of_ranks_are_kept_separate() -> None:
    grid = Topology(dp=3, pp=2)
    reduced = [(rank, Stage.GRADS_ALL_REDUCE, 0, 9) for rank in (0, 2, 4)]
    spans = made_columns((0, SEND, 0, 2), *reduced, (1, RECV, 0, 3))
    assert whole(spans, grid) == [[0, 4], [1, 2, 3]]


def test_recorded_number_matches_send_and_receive_when_a_span_is_missing() -> None:
    spans = made_columns((0, SEND, 0, 2), (0, SEND, 4, 5), (1, RECV, 4, 6))
    spans.microbatch[:] = (0, 1, 1)
    first, second, received = recorded_numbers(spans).tolist()
    assert first != second == received
    assert whole(spans, PIPELINE) == []


def test_microbatch_numbers_a_transfer_but_not_a_collective() -> None:
    spans = made_columns((0, SEND, 0, 2), (0, Stage.GRADS_ALL_REDUCE, 0, 2), (0, Stage.GRADS_ALL_REDUCE, 0, 2))
    spans.microbatch[:] = 0
    spans.op_seq[:] = (0, 0, 7)
    numbers = recorded_numbers(spans)
    assert numbers[1:].tolist() == [NOT_NUMBERED, 7]
    assert numbers[0] != NOT_NUMBERED


def test_row_order_does_not_change_the_matched_operations() -> None:
    spans = made_columns((0, SEND, 0, 2), (0, SEND, 10, 12), (1, RECV, 1, 3), (1, RECV, 11, 13))
    mixed = spans.where(np.array([3, 0, 2, 1]))
    assert {(mixed.seq[a], mixed.seq[b]) for a, b in whole(mixed, PIPELINE)} == {(0, 2), (1, 3)}
