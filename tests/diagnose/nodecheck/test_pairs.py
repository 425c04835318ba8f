"""The paired test on modelled fleets. Bad nodes are named, and their partners are not. Unclear cases name no node."""

import random
from collections import Counter
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.nodecheck.pairs.plan import MAX_ROUNDS, pairs
from diagnose.nodecheck.pairs.records import PairRun
from tests.diagnose.nodecheck.made_fleet import run_test
from tests.each_case import each_case

SLOW = st.one_of(st.none(), st.floats(3.0, 50.0))
"""None: the node fails."""
SOME = settings(max_examples=25, deadline=None, derandomize=True)


def named(factors: list[float | None], jitter: st.DataObject | None = None) -> tuple[int, ...]:
    """The nodes that the test names. With ``jitter``, the time of a pair varies by up to 10%."""
    draw = (lambda: 1.0) if jitter is None else (lambda: jitter.draw(st.floats(0.9, 1.1)))
    return tuple(bad.node for bad in run_test(factors, draw)[0].bad)


@SOME
@given(num_nodes=st.integers(3, 64), data=st.data())
def test_one_bad_node_is_named_and_no_other(num_nodes: int, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(0, num_nodes - 1))
    factors: list[float | None] = [1.0] * num_nodes
    factors[culprit] = data.draw(SLOW)
    assert named(factors, data) == (culprit,)


@SOME
@given(num_nodes=st.integers(4, 64), data=st.data())
def test_two_bad_nodes_are_named_and_no_other(num_nodes: int, data: st.DataObject) -> None:
    culprits = sorted(data.draw(st.sets(st.integers(0, num_nodes - 1), min_size=2, max_size=2)))
    factors: list[float | None] = [1.0] * num_nodes
    for culprit in culprits:
        factors[culprit] = data.draw(SLOW)
    assert named(factors, data) == tuple(culprits)


@each_case("num_nodes", [4, 5, 6, 7, 8, 9])
@each_case("factor", [3.0, None])
def test_any_two_bad_nodes_of_a_small_fleet_are_named(num_nodes: int, factor: float | None) -> None:
    for culprits in combinations(range(num_nodes), 2):
        factors = [factor if node in culprits else 1.0 for node in range(num_nodes)]
        assert named(factors) == culprits


@SOME
@given(num_nodes=st.integers(2, 64), data=st.data())
def test_no_node_is_named_in_a_healthy_fleet_that_scatters_by_20_percent(num_nodes: int, data: st.DataObject) -> None:
    judgement, _ = run_test([1.0] * num_nodes, lambda: data.draw(st.floats(0.8, 1.2)))
    assert (judgement.bad, judgement.undecided) == ((), ())


def test_node_of_a_noisy_healthy_fleet_is_rarely_named() -> None:
    accusing = 0
    for seed in range(300):
        scatter = random.Random(seed)
        factors: list[float | None] = [1.0] * scatter.randint(3, 48)
        accusing += bool(run_test(factors, lambda: 1 + scatter.expovariate(2.0))[0].bad)  # noqa: B023 - called at once
    assert accusing <= 6


def test_no_node_is_named_when_most_nodes_are_slow() -> None:
    assert named([1.0] * 6 + [2.0] * 10) == ()


@SOME
@given(bad=SLOW, culprit=st.integers(0, 1))
def test_no_node_is_named_in_a_fleet_of_two_nodes(bad: float | None, culprit: int) -> None:
    factors: list[float | None] = [1.0, 1.0]
    factors[culprit] = bad
    judgement, _ = run_test(factors, lambda: 1.0)
    assert judgement.bad == ()
    assert judgement.undecided == ((0, 1) if bad is None else ())


@SOME
@given(num_nodes=st.integers(3, 32), data=st.data())
def test_no_healthy_node_is_named_for_any_number_of_failing_nodes(num_nodes: int, data: st.DataObject) -> None:
    failing = data.draw(st.sets(st.integers(0, num_nodes - 1)))
    assert set(named([None if node in failing else 1.0 for node in range(num_nodes)])) <= failing


@SOME
@given(num_nodes=st.integers(2, 64), data=st.data())
def test_each_node_has_one_partner_in_a_round_and_no_pair_is_repeated(num_nodes: int, data: st.DataObject) -> None:
    factors = [data.draw(st.sampled_from([1.0, 1.0, 1.0, 4.0, None])) for _ in range(num_nodes)]
    _, runs = run_test(factors, lambda: data.draw(st.floats(0.9, 1.1)))
    assert max(Counter(frozenset(run.members) for run in runs).values()) == 1
    for number in range(max(run.round for run in runs) + 1):
        members = [member for run in runs if run.round == number for member in run.members]
        assert len(members) == len(set(members)) == num_nodes - num_nodes % 2


def test_node_without_a_partner_is_paired_in_the_next_round() -> None:
    runs = [PairRun(round=0, members=(0, 1), seconds=1.0), PairRun(round=0, members=(2, 3), seconds=1.0)]
    assert 4 in {node for pair in pairs(range(5), 1, runs) for node in pair}


def test_node_of_the_slowest_pair_is_paired_with_a_node_of_the_fastest_pair() -> None:
    times = {(0, 1): 1.1, (2, 3): 3.0, (4, 5): 1.0}
    runs = [PairRun(round=0, members=pair, seconds=seconds) for pair, seconds in times.items()]
    assert pairs(range(6), 1, runs)[0] == (2, 5)


def test_no_node_is_named_and_rounds_are_limited_when_all_nodes_fail() -> None:
    judgement, runs = run_test([None] * 16, lambda: 1.0)
    assert judgement.bad == ()
    assert judgement.undecided == tuple(range(16))
    assert max(run.round for run in runs) == MAX_ROUNDS - 1


def test_a_fleet_of_four_thousand_nodes_is_paired() -> None:
    runs = [PairRun(round=0, members=(node, node + 1), seconds=1.0 + node / 4096) for node in range(0, 4096, 2)]
    planned = pairs(range(4096), 1, runs)
    assert sorted(node for pair in planned for node in pair) == list(range(4096))
    assert not {frozenset(pair) for pair in planned} & {frozenset(run.members) for run in runs}
