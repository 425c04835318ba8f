import numpy as np
import pytest

from diagnose.model.collectives import (
    all_collectives,
    group_collectives,
    pair_transfers,
    round_trips,
    starts_late_ns,
)
from diagnose.model.operations import ABSENT, Operations
from diagnose.model.peers import median_of_others
from telemetry.stages import Stage
from telemetry.topology import Topology
from tests.diagnose.made_collectives import as_operations, make_collective_view
from tests.each_case import each_case

TWO_BY_TWO = Topology(dp=2, pp=2)


def operations(duration_ns: list[list[float]], peer: list[list[int]] | None = None) -> Operations:
    """One step, [occurrences, ranks]."""
    values = np.array([duration_ns], dtype=np.float64)
    return as_operations(values, np.zeros_like(values), None if peer is None else np.array([peer]))


def test_last_rank_of_a_collective_has_the_shortest_duration_which_is_the_transfer_time() -> None:
    collectives = group_collectives(Stage.GRADS_REDUCE_SCATTER, operations([[30, 12, 10, 50]]), TWO_BY_TWO)[0]
    assert collectives.ranks.tolist() == [[0, 2], [1, 3]]
    assert collectives.transfer_ns.tolist() == [[[10, 12]]]
    assert starts_late_ns(collectives).tolist() == [[[[-20, 20], [38, -38]]]]


@each_case("topology", [TWO_BY_TWO, Topology(dp=3, pp=2, tp=2), Topology(dp=4)])
def test_collective_groups_match_the_groups_of_the_topology(topology: Topology) -> None:
    view = make_collective_view(topology, num_steps=2)
    collectives = group_collectives(Stage.PARAMS_ALL_GATHER, view.operations[Stage.PARAMS_ALL_GATHER], topology)[0]
    assert [tuple(group) for group in collectives.ranks.tolist()] == list(topology.groups(along="dp"))
    assert collectives.alike.tolist() == [topology.place(group[0]).pp for group in collectives.ranks.tolist()]


def test_a_collective_that_a_member_did_not_record_is_left_out() -> None:
    collectives = group_collectives(Stage.PARAMS_ALL_GATHER, operations([[30, 12, 10, np.nan]]), TWO_BY_TWO)[0]
    assert np.isnan(collectives.duration_ns[0, 0, 1]).all()
    assert collectives.transfer_total_ns()[0, 0] == 10
    assert np.isnan(collectives.transfer_total_ns()[0, 1])


def test_nth_send_is_paired_with_the_nth_receive_of_its_peer() -> None:
    none = np.nan
    sends = operations([[5, none, 6, none], [7, none, 8, none]], [[1, ABSENT, 3, ABSENT]] * 2)
    receives = operations([[none, 50, none, 60], [none, 4, none, 80]], [[ABSENT, 0, ABSENT, 2]] * 2)
    pairs = pair_transfers(Stage.FORWARD_SEND, sends, receives, TWO_BY_TWO, towards=1)
    assert pairs.ranks.tolist() == [[0, 1], [2, 3]]
    assert pairs.transfer_ns[0].tolist() == [[5, 6], [4, 8]]
    assert pairs.alike.tolist() == [0, 0]


@pytest.mark.parametrize(("towards", "senders"), [(1, [0, 2]), (-1, [1, 3])])
def test_transfers_without_recorded_peers_are_paired_with_the_pipeline_neighbour(
    towards: int, senders: list[int]
) -> None:
    every = operations([[5, 5, 5, 5]])
    pairs = pair_transfers(Stage.FORWARD_SEND, every, every, TWO_BY_TWO, towards=towards)
    assert pairs.ranks.tolist() == [[rank, rank + towards] for rank in senders]


def test_steps_with_unequal_numbers_of_sends_and_receives_are_ignored() -> None:
    none = np.nan
    sends = operations([[5, none, 6, none], [none, none, 8, none]])
    receives = operations([[none, 50, none, 60], [none, 4, none, 80]])
    pairs = pair_transfers(Stage.FORWARD_SEND, sends, receives, TWO_BY_TWO, towards=1)
    assert np.isnan(pairs.duration_ns[0, :, 0]).all()
    assert not np.isnan(pairs.duration_ns[0, :, 1]).any()


def test_a_rank_that_sends_to_several_peers_is_left_out() -> None:
    none = np.nan
    sends = operations([[5, none, 6, none], [7, none, 8, none]], [[1, -1, 3, -1], [3, -1, 3, -1]])
    receives = operations([[none, 50, none, 60], [none, 4, none, 80]], [[-1, 0, -1, 2]] * 2)
    pairs = pair_transfers(Stage.FORWARD_SEND, sends, receives, TWO_BY_TWO, towards=1)
    assert pairs.ranks.tolist() == [[2, 3]]


def test_data_parallel_degree_of_one_has_no_data_parallel_collectives() -> None:
    topology = Topology(pp=2)
    assert {one.stage for one in all_collectives(make_collective_view(topology).operations, topology)} == {
        Stage.FORWARD_SEND,
        Stage.BACKWARD_SEND,
    }


@pytest.mark.parametrize("count", range(1, 8))
@pytest.mark.parametrize("seed", range(5))
def test_median_of_others_excludes_the_member_itself(count: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 5, (3, 4, count)).astype(np.float64)
    if count == 1:
        assert np.isnan(median_of_others(values)).all()
        return
    for member in range(count):
        expected = np.median(np.delete(values, member, axis=-1), axis=-1)
        assert np.array_equal(median_of_others(values)[..., member], expected)


def test_clock_offsets_between_ranks_do_not_change_collective_durations() -> None:
    topology = Topology(dp=4, pp=2)
    view = make_collective_view(topology, seed=3)
    before = [one.duration_ns for one in all_collectives(view.operations, topology)]
    for one in view.operations.values():
        one.start_ns[..., 1::3] += 10**13
    after = [one.duration_ns for one in all_collectives(view.operations, topology)]
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(before, after, strict=True))


@each_case("skew_ns", [0, 3_600_000, -90_000])
def test_round_trip_gives_the_transfer_time_of_a_pair_despite_clock_skew(skew_ns: int) -> None:
    """Transfers take 10 forward and 14 backward. The second microbatch waits for a busy receiver. Sends end at once."""
    rank_0 = [0, 50]
    none = [np.nan, np.nan]
    times = {
        Stage.FORWARD_SEND: ([[1, 1], none], [rank_0, none]),
        Stage.FORWARD_RECV: ([none, [10, 60]], [none, [skew_ns, 30 + skew_ns]]),
        Stage.BACKWARD_SEND: ([none, [1, 1]], [none, [20 + skew_ns, 95 + skew_ns]]),
        Stage.BACKWARD_RECV: ([[9, 59], none], [[25, 60], none]),
    }
    made = {
        stage: as_operations(
            np.array([duration], dtype=float).swapaxes(1, 2), np.array([start], dtype=float).swapaxes(1, 2)
        )
        for stage, (duration, start) in times.items()
    }
    trips = round_trips(made, Topology(dp=1, pp=2))
    assert trips is not None
    assert trips.ranks.tolist() == [[0, 1]]
    assert trips.transfer_ns.tolist() == [[[(10 + 14) / 2]]]


def test_pair_with_transfers_in_only_one_direction_has_no_round_trip() -> None:
    view = make_collective_view(TWO_BY_TWO, num_steps=2)
    one_way = {stage: one for stage, one in view.operations.items() if stage is not Stage.BACKWARD_RECV}
    assert round_trips(one_way, TWO_BY_TWO) is None
