"""Arrows from sends to their receives, and from the last member of a collective to the others."""

from diagnose.model.operations import SpanColumns
from diagnose.trace.survey import Arrows, collectives, transfers
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.trace.made_columns import made_columns

PIPELINE = Topology(pp=3)
REPLICAS = Topology(dp=3)
SEND, RECV, BACK_SEND, BACK_RECV = Stage.FORWARD_SEND, Stage.FORWARD_RECV, Stage.BACKWARD_SEND, Stage.BACKWARD_RECV
REDUCE = Stage.GRADS_REDUCE_SCATTER


def drawn(arrows: Arrows) -> list[tuple[int, int]]:
    return sorted(zip(arrows.source.tolist(), arrows.target.tolist(), strict=True))


def reduced(*starts_and_ends: tuple[int, int]) -> SpanColumns:
    """One collective of three replicas."""
    return made_columns(*((rank, REDUCE, *times) for rank, times in enumerate(starts_and_ends)))


def test_arrow_leads_from_the_nth_send_to_the_nth_receive_of_its_peer() -> None:
    spans = made_columns(
        (0, SEND, 0, 2), (0, SEND, 10, 12), (1, RECV, 1, 3), (1, RECV, 11, 13), (1, SEND, 14, 15), (2, RECV, 0, 16),
        peers=(1, 1, 0, 0, 2, 1),
    )  # fmt: skip
    assert drawn(transfers(spans, PIPELINE)) == [(0, 2), (1, 3), (4, 5)]


def test_peer_is_the_pipeline_neighbour_when_none_is_recorded() -> None:
    spans = made_columns((0, SEND, 0, 2), (1, RECV, 1, 3), (2, BACK_SEND, 4, 5), (1, BACK_RECV, 4, 6))
    assert drawn(transfers(spans, PIPELINE)) == [(0, 1), (2, 3)]


def test_transfer_from_the_last_to_the_first_stage_needs_a_recorded_peer() -> None:
    spans = made_columns((2, SEND, 0, 2), (0, RECV, 1, 3), peers=(0, 2))
    assert drawn(transfers(spans, PIPELINE)) == [(0, 1)]
    nobody = made_columns((2, SEND, 0, 2), (0, RECV, 1, 3))
    assert drawn(transfers(nobody, PIPELINE)) == []


def test_no_arrow_of_a_pair_of_ranks_is_drawn_when_a_record_is_missing() -> None:
    spans = made_columns(
        (0, SEND, 0, 2), (0, SEND, 10, 12), (1, RECV, 11, 13), (1, SEND, 14, 15), (2, RECV, 0, 16),
        peers=(1, 1, 0, 2, 1),
    )  # fmt: skip
    assert drawn(transfers(spans, PIPELINE)) == [(3, 4)]


def test_arrows_lead_from_the_member_that_entered_last_to_the_others() -> None:
    assert drawn(collectives(reduced((0, 30), (20, 31), (5, 30)), REPLICAS, ("a", "a", "a"))) == [(1, 0), (1, 2)]


def test_member_with_the_shortest_span_entered_last_when_hosts_differ() -> None:
    spans = reduced((0, 30), (20, 50), (5, 15))
    assert drawn(collectives(spans, REPLICAS, ("a", "a", "b"))) == [(2, 0), (2, 1)]
    assert drawn(collectives(spans, REPLICAS, ("", "", ""))) == [(2, 0), (2, 1)]


def test_collectives_are_distinguished_by_their_number_in_the_step() -> None:
    spans = made_columns(
        (0, REDUCE, 0, 9), (0, REDUCE, 10, 19), (1, REDUCE, 1, 9), (1, REDUCE, 8, 19), (2, REDUCE, 0, 9),
        (2, REDUCE, 11, 19),
    )  # fmt: skip
    assert drawn(collectives(spans, REPLICAS, ("a",) * 3)) == [(2, 0), (2, 4), (5, 1), (5, 3)]


def test_no_arrow_is_drawn_for_an_incomplete_group() -> None:
    assert drawn(collectives(reduced((0, 30), (20, 30)), REPLICAS, ("a",) * 3)) == []
    uneven = made_columns((0, REDUCE, 0, 9), (0, REDUCE, 10, 19), (1, REDUCE, 1, 9), (2, REDUCE, 0, 9))
    assert drawn(collectives(uneven, REPLICAS, ("a",) * 3)) == []


def test_arrows_of_a_collective_stay_in_the_groups_along_its_axis() -> None:
    grid = Topology(dp=2, pp=2, tp=2)
    tensor = made_columns(*((rank, Stage.TP_ALL_GATHER, rank, 20) for rank in range(8)))
    assert drawn(collectives(tensor, grid, ("a",) * 8)) == [(1, 0), (3, 2), (5, 4), (7, 6)]
    data = made_columns(*((rank, Stage.PARAMS_ALL_GATHER, rank, 20) for rank in range(8)))
    assert drawn(collectives(data, grid, ("a",) * 8)) == [(4, 0), (5, 1), (6, 2), (7, 3)]


def test_embedding_all_reduce_joins_the_first_and_last_stage_of_a_pipeline() -> None:
    spans = made_columns((0, Stage.EMBEDDING_GRADS_ALL_REDUCE, 0, 9), (2, Stage.EMBEDDING_GRADS_ALL_REDUCE, 3, 9))
    assert drawn(collectives(spans, PIPELINE, ("a",) * 3)) == [(1, 0)]


def test_no_arrow_is_drawn_without_spans() -> None:
    nothing = made_columns()
    assert len(transfers(nothing, PIPELINE)) == len(collectives(nothing, PIPELINE, ("a",) * 3)) == 0
