"""Which spans belong to one operation, and which rank waited in it."""

import numpy as np
import pytest

from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.ui.few_spans import made_spans
from ui.dashboard.data import Reads
from ui.dashboard.pages.timeline.selection import SpanClocks
from ui.dashboard.pages.timeline.spans_buffer import NO_FLOW, flows, waited_ns
from ui.dashboard.records import SpanColumns
from ui.dashboard.view_state import ViewState

GRID = Topology(dp=2, pp=2, tp=2)


def clocks(host: list[int], *, clock: list[int] | None = None, bound_ns: int = 0) -> SpanClocks:
    """By span. All clocks are aligned, unless ``clock`` is given."""
    return SpanClocks(host=np.array(host), clock=np.array(clock or [0] * len(host)), bound_ns=bound_ns)


def partners(spans: SpanColumns, topology: Topology = GRID) -> list[set[int]]:
    """Rows that share an operation."""
    flow = flows(spans, topology)
    return [set(np.flatnonzero(flow == one).tolist()) for one in np.unique(flow[flow != NO_FLOW])]


def test_spans_of_the_same_group_stage_and_number_form_one_collective() -> None:
    gather = Stage.TP_ALL_GATHER
    spans = made_spans(
        (0, gather, 0, 9), (1, gather, 3, 6), (2, gather, 0, 9), (0, gather, 20, 9), (1, Stage.TP_REDUCE_SCATTER, 3, 6),
        op_seq=[1, 1, 1, 2, 1],
    )  # fmt: skip
    assert partners(spans) == [{0, 1}]


def test_groups_of_collectives_are_along_the_axis_of_the_stream() -> None:
    rows = [(rank, Stage.GRADS_REDUCE_SCATTER, 0, 9) for rank in range(8)]
    assert partners(made_spans(*rows, op_seq=[4] * 8)) == [{0, 4}, {1, 5}, {2, 6}, {3, 7}]


def test_transfer_joins_a_send_with_its_receive_and_not_with_the_opposite_direction() -> None:
    spans = made_spans(
        (0, Stage.FORWARD_SEND, 5, 2), (2, Stage.FORWARD_RECV, 0, 7), (0, Stage.FORWARD_SEND, 9, 2),
        (2, Stage.BACKWARD_SEND, 20, 2), (0, Stage.BACKWARD_RECV, 11, 11),
        peer=[2, 0, 2, 0, 2], microbatch=[0, 0, 1, 0, 0],
    )  # fmt: skip
    assert sorted(map(sorted, partners(spans))) == [[0, 1], [3, 4]]


def test_transfer_without_a_recorded_peer_is_joined_along_the_pipeline() -> None:
    spans = made_spans((0, Stage.FORWARD_SEND, 5, 2), (2, Stage.FORWARD_RECV, 0, 7), op_seq=[3, 3])
    assert partners(spans) == [{0, 1}]


def test_spans_without_an_operation_number_have_no_partner() -> None:
    spans = made_spans((0, Stage.TP_ALL_GATHER, 0, 9), (1, Stage.TP_ALL_GATHER, 0, 9), (0, Stage.FORWARD_SEND, 0, 9))
    assert partners(spans) == []
    assert partners(made_spans()) == []


def test_first_and_last_pipeline_rank_share_the_embedding_all_reduce() -> None:
    rows = [(rank, Stage.EMBEDDING_GRADS_ALL_REDUCE, 0, 9) for rank in range(8)]
    assert partners(made_spans(*rows, op_seq=[4] * 8)) == [{0, 2}, {1, 3}, {4, 6}, {5, 7}]


def test_first_rank_in_a_collective_waits_for_the_last_if_the_clock_bound_is_smaller() -> None:
    rows = [(rank, Stage.TP_ALL_GATHER, start, 100 - start) for rank, start in ((0, 0), (1, 60))]
    spans = made_spans(*rows, op_seq=[1, 1])
    flow = flows(spans, GRID)
    assert waited_ns(spans, flow, clocks([0, 1], bound_ns=59)).tolist() == [60, 0]
    assert waited_ns(spans, flow, clocks([0, 1], bound_ns=60)).tolist() == [0, 0]
    assert waited_ns(spans, flow, clocks([0, 1], clock=[0, 1])).tolist() == [0, 0]


@pytest.mark.parametrize("clock", [0, 3])
def test_wait_for_a_rank_of_the_same_host_is_known_however_large_the_bound_between_hosts_is(clock: int) -> None:
    spans = made_spans((0, Stage.TP_ALL_GATHER, 0, 100), (1, Stage.TP_ALL_GATHER, 60, 40), op_seq=[1, 1])
    one_host = clocks([7, 7], clock=[clock, clock], bound_ns=10**9)
    assert waited_ns(spans, flows(spans, GRID), one_host).tolist() == [60, 0]


def test_a_send_that_ended_before_its_receive_began_waited_for_no_rank() -> None:
    spans = made_spans((0, Stage.FORWARD_SEND, 0, 10), (2, Stage.FORWARD_RECV, 30, 5), peer=[2, 0], microbatch=[0, 0])
    assert waited_ns(spans, flows(spans, GRID), clocks([0, 0])).tolist() == [0, 0]


def test_every_communication_span_has_an_operation_and_the_peer_of_the_slow_rank_waits(reads: Reads) -> None:
    facts = reads.facts(ViewState(run="made"))
    spans = reads.spans(facts.summary, 20, tuple(range(8)))
    flow = flows(spans, facts.topology)
    meets = [int(stage) for stage in Stage if stage.stage_class.name == "COMMUNICATION"]
    assert (flow[np.isin(spans.stage, meets)] != NO_FLOW).all()
    assert (flow[~np.isin(spans.stage, meets)] == NO_FLOW).all()
    waited = waited_ns(spans, flow, clocks([0] * len(spans)))
    of_collectives = np.isin(spans.stage, [int(Stage.TP_ALL_GATHER), int(Stage.TP_REDUCE_SCATTER)])
    by_rank = [int(waited[of_collectives & (spans.rank == rank)].sum()) for rank in (4, 5)]
    assert by_rank[0] > 5 * by_rank[1], "the peer of slow rank 5 waits for it"
