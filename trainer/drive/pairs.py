"""Paired tests of the network between the nodes of a round: which node is the first one of a test, and what the
verdicts show about the nodes. All functions are pure.

Each node connects to the others after its own checks. So a node that reaches no other node is found first.

``rankscope doctor --pairs`` pairs the nodes, and judges those that reach the first node of the test. A node that does
not reach the first node cannot take part. So if a node is left without a pair that works, another first node is used:

    test 1, first a    (a b) works    c does not reach a       c, or the way between a and c?
    test 2, first b    (a b) works    c does not reach b       c fails with two nodes that work with each other
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trainer.drive.job import PairedTest
from trainer.drive.records import CheckReport, PairReport

MAX_TESTS = 3
"""Largest number of paired tests in a round."""
MIN_PARTNERS = 2
"""A node is blocked if it fails with all of its partners, and has at least this number of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairJudgement:
    """What the paired tests of a round show. ``failed`` and ``slow`` hold the reason for each node."""

    failed: dict[str, str] = field(default_factory=dict)
    slow: dict[str, str] = field(default_factory=dict)
    undecided: tuple[str, ...] = ()
    """Nodes for which no pair worked, although it is not known which node is the cause."""
    num_working: dict[str, int] = field(default_factory=dict)
    """Number of partners with which a node worked."""
    problems: dict[str, str] = field(default_factory=dict)
    """Why a node has no verdict, if the network is not the reason."""


def judge_pairs(tests: Sequence[PairedTest]) -> PairJudgement:
    """Judge the nodes by all tests of a round that are over."""
    links = _links(tests)
    num_working = Counter(node for pair, works in links.items() if works for node in pair)
    partners: dict[str, set[str]] = {}
    for pair in links:
        for node in pair - num_working.keys():
            partners.setdefault(node, set()).update(pair - {node})
    failed = {
        node: f"no pair with {_listed(others)} worked; {_listed(others & num_working.keys())} worked with another node"
        for node, others in partners.items()
        if len(others) >= MIN_PARTNERS and others & num_working.keys()
    }
    return PairJudgement(
        failed=failed,
        slow={node: reason for node, reason in _slow(tests) if node not in failed},
        undecided=tuple(sorted(partners.keys() - failed.keys())),
        num_working=num_working,
        problems={
            node: verdict.problem
            for test in tests
            for node, verdict in test.verdicts.items()
            if verdict.problem and not verdict.is_cut_off
        },
    )


def cut_off_nodes(reports: Mapping[str, CheckReport]) -> dict[str, str]:
    """The nodes that the network does not connect to any other node: node -> reason.

    A node is connected if another node answered it, or if it answered another node: a firewall can block one direction.
    A node is named only if it and at least MIN_PARTNERS others did not answer each other. No node is named if no
    two nodes are connected, because then the whole network is down.
    """
    linked = {frozenset((name, peer)) for name, report in reports.items() for peer in report.reached}
    connected = {name for pair in linked for name in pair}
    found = {}
    for name, report in reports.items():
        others = {peer for peer in report.unreached if peer in reports and name in reports[peer].unreached}
        if name not in connected and len(others) >= MIN_PARTNERS and linked:
            found[name] = f"it cannot reach {_listed(others)}"
    return found


def next_first(nodes: Sequence[str], tests: Sequence[PairedTest]) -> str | None:
    """The first node of the next test, or None if no further test is needed or can help."""
    if not tests:
        return nodes[0] if len(nodes) > 1 else None
    judgement = judge_pairs(tests)
    undecided = set(judgement.undecided).intersection(nodes)  # others were lost during the test
    used = {test.nodes[0] for test in tests}
    left = [node for node in nodes if node not in used]
    if not undecided or not left or len(nodes) <= MIN_PARTNERS or len(tests) >= MAX_TESTS:
        return None
    return min(left, key=lambda node: (node not in judgement.num_working, nodes.index(node)))


def _links(tests: Sequence[PairedTest]) -> dict[frozenset[str], bool]:
    """Two nodes -> whether they ever worked together."""
    found: dict[frozenset[str], bool] = {}
    for test in tests:
        for pair, works in _seen_in(test):
            found[pair] = works or found.get(pair, False)
    return found


def _seen_in(test: PairedTest) -> Iterator[tuple[frozenset[str], bool]]:
    first = test.nodes[0]
    verdict = _verdict_of(test)
    if verdict is not None:
        for run in verdict.runs:
            pair = frozenset(test.nodes[index] for index in run.members)
            if not (run.failed and any(_is_killed(test, node) for node in pair)):
                yield pair, not run.failed
    absent = range(1, len(test.nodes)) if verdict is None else verdict.absent
    if verdict is None and first in test.verdicts:  # it could not begin the test, which the network did not prevent
        return
    for index in absent:
        own = test.verdicts.get(test.nodes[index])
        if index and (own is None or own.is_cut_off):
            yield frozenset((first, test.nodes[index])), False


def _is_killed(test: PairedTest, node: str) -> bool:
    """Whether something else ended the test of a node, so that its pairs show nothing about the network."""
    own = test.verdicts.get(node)
    return own is not None and own.is_killed


def _verdict_of(test: PairedTest) -> PairReport | None:
    """The verdict of a test; None if there is none. Every node that took part got the same verdict."""
    found = [test.verdicts[node] for node in test.nodes if node in test.verdicts]
    return next((verdict for verdict in found if not verdict.problem), None)


def _slow(tests: Sequence[PairedTest]) -> Iterator[tuple[str, str]]:
    for test in tests:
        verdict = _verdict_of(test)
        for accused in verdict.accused if verdict else ():
            if not accused.failed:
                words = f"{accused.ratio or 0:.1f}x the usual time or more with every partner; {accused.cause}"
                yield test.nodes[accused.index], words


def _listed(nodes: Collection[str]) -> str:
    return ", ".join(sorted(nodes))
