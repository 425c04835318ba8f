"""Rounds of node checks: which nodes are checked and when, and what follows from the results.

new, suspect --round--> ready
     |  '--slow once--> suspect --another round--> ready | blocked
     |--killed twice from outside--> ready, used after the other nodes
     '--failed--> blocked

round    each node checks itself --passed, on several addresses--> paired tests of the network (``pairs.py``)
"""

from collections.abc import Sequence

from trainer.drive.checks import slow_nodes, why_failed
from trainer.drive.job import Node, NodeState, PairedTest, Round
from trainer.drive.pairs import PairJudgement, cut_off_nodes, judge_pairs, next_first
from trainer.drive.records import CheckReport, Order, Work
from trainer.drive.transitions import Transitions

GATHER_S = 10.0
"""At the start, how long the driver waits for spares before it checks the nodes that are there."""
CHECK_S = 240.0
"""A round of checks ends after this time. A node without a result has failed. Each check may run twice."""
PAIRS_S = 240.0
"""A paired test ends after this time."""
MIN_PATIENCE_S, MAX_PATIENCE_S = 10.0, 30.0
PATIENCE_FACTOR = 3.0
"""The nodes of a paired test wait for each other. The wait is this number of times as long as the slowest node took to
check itself: the checks and the paired test both import torch, and that is slow on a loaded machine."""
PEERS_BESIDE = 4
"""A node checks its connection to this many nodes on each side, in the order of the round."""
MIN_NODES = 3
"""Least number of nodes in a round with several addresses. Two nodes do not show which of them breaks their pair."""
BUSY_HINT = (
    "If other programs kept its processors busy, end them, and admit the node again: rankscope drive resume {node}"
)
CHECKED = (NodeState.NEW, NodeState.SUSPECT, NodeState.READY)
"""States of nodes that a round judges. Nodes in other states were lost or drained during the round."""


class Rounds:
    """The checks of the nodes of one job."""

    def __init__(self, transitions: Transitions) -> None:
        self._transitions = transitions
        self._job = transitions.job
        self._config = transitions.config

    @property
    def waiting(self) -> list[Node]:
        """Nodes that must pass a check before they train."""
        return self._job.in_state(NodeState.NEW, NodeState.SUSPECT)

    def begin(self) -> None:
        """Begin a round with the nodes that wait for a check, if no rank lives on them."""
        job, nodes = self._job, self.waiting
        if not self._config.checks:
            for node in nodes:
                self._transitions.set(node, NodeState.READY)
            return
        missing = len(job.nodes) < self._config.num_nodes + self._config.num_spares
        early = job.attempt < 0 and missing and self._transitions.now_s - job.since_s < GATHER_S
        if not nodes or job.round is not None or early or any(node.has_ranks for node in nodes):
            return
        nodes += self._partners(nodes)
        job.num_rounds += 1
        job.round = Round(
            number=job.num_rounds, nodes=tuple(node.name for node in nodes), since_s=self._transitions.now_s
        )
        self._transitions.decide("check", f"check {', '.join(job.round.nodes)}")

    def leave(self, node: Node) -> None:
        """Take a node out of the round, because it was away and may not have its results in time. The next round checks
        it."""
        now = self._job.round
        if now is not None:
            now.nodes = tuple(name for name in now.nodes if name != node.name)

    def order(self, node: Node) -> Order | None:
        """What the round orders a node to do, or None if it orders nothing."""
        now = self._job.round
        if now is None or node.name not in now.nodes:
            return None
        test = now.tests[-1] if now.tests else None
        if test is None:
            is_checked = node.result_of(now.number) is not None
            return None if is_checked else Order(work=Work.CHECK, check=now.number, peers=self._peers(now, node))
        if node.name not in test.nodes or node.verdict_of(test.number) is not None:
            return None
        return Order(work=Work.CHECK, check=now.number, pairs=test.order_for(node.name))

    def end(self) -> None:
        """If every node has its results, or the time is over: judge the nodes. Then begin the next paired test, or end
        the round."""
        now = self._job.round
        if now is None:
            return
        if now.tests:
            self._end_test(now)
        else:
            self._end_checks(now)

    def _peers(self, now: Round, node: Node) -> dict[str, str]:
        """Up to eight other nodes of the round -> their ``address:port``. Nothing listens on this port. With all nodes,
        the orders of a round would grow with the square of their number."""
        place, num_nodes = now.nodes.index(node.name), len(now.nodes)
        beside = {(place + by) % num_nodes for by in range(-PEERS_BESIDE, PEERS_BESIDE + 1)} - {place}
        others = [self._job.nodes[now.nodes[index]] for index in sorted(beside)]
        reports = [other.report for other in others if other.report is not None and other.report.address]
        return {report.node: f"{report.address}:{report.port}" for report in reports}

    def _partners(self, nodes: Sequence[Node]) -> list[Node]:
        """Other nodes for comparison: one, or two if the network between nodes is measured."""
        ready = [node for node in self._job.in_state(NodeState.READY) if not node.has_ranks]
        few = MIN_NODES if _addresses([*nodes, *ready]) else 2
        least = 1 if few == MIN_NODES else 0
        return ready[: max(few - len(nodes), least)]

    def _end_checks(self, now: Round) -> None:
        present = self._present(now, now.nodes)
        results = {node.name: found for node in present if (found := node.result_of(now.number)) is not None}
        if len(results) < len(present) and self._transitions.now_s - now.since_s < CHECK_S:
            return
        checked_s = self._transitions.now_s - now.since_s
        now.patience_s = min(max(PATIENCE_FACTOR * checked_s, MIN_PATIENCE_S), MAX_PATIENCE_S)
        slow = slow_nodes(results, self._config.slow_ratio)
        failed = cut_off_nodes(results)
        failed |= {node.name: problem for node in present if (problem := _problem(results.get(node.name)))}
        passed = [node for node in present if node.name not in failed and node.name not in slow]
        paired = bool(_addresses(passed))
        for node in present:
            self._note_unknown(node, results.get(node.name))
            if not paired or node not in passed:
                self._judge(node, failed.get(node.name, ""), slow.get(node.name, ""))
        if not paired or not self._begin_test(now, passed):
            self._job.round = None

    def _note_unknown(self, node: Node, found: CheckReport | None) -> None:
        """Record that something else killed a check of the node twice. This proves no fault: memory may have run out.
        Other nodes are used first. If ranks fail on the node, it is checked again."""
        if found is not None and found.unknown and not why_failed(found):
            node.num_faults += 1
            self._transitions.decide("check-undecided", f"the check was killed twice: {found.unknown}", node)

    def _begin_test(self, now: Round, nodes: Sequence[Node]) -> bool:
        """Begin to measure the network between nodes. Returns False if it is known, or cannot be measured."""
        order = sorted(nodes, key=lambda node: (node.state is not NodeState.READY, node.num_faults))
        first = next_first([node.name for node in order], now.tests)
        if first is None:
            return False
        report = self._job.nodes[first].report
        assert report is not None
        self._job.num_tests += 1
        test = PairedTest(
            number=self._job.num_tests,
            nodes=(first, *(node.name for node in order if node.name != first)),
            endpoint=f"{report.address}:{report.port}",
            since_s=self._transitions.now_s,
            patience_s=now.patience_s,
        )
        now.tests.append(test)
        self._transitions.decide("check-pairs", f"measure the network between {', '.join(test.nodes)}")
        return True

    def _end_test(self, now: Round) -> None:
        test = now.tests[-1]
        present = self._present(now, test.nodes)
        verdicts = {node.name: found for node in present if (found := node.verdict_of(test.number)) is not None}
        if len(verdicts) < len(present) and self._transitions.now_s - test.since_s < PAIRS_S:
            return
        test.verdicts = verdicts
        if self._begin_test(now, present):
            return
        self._job.round = None
        judgement = judge_pairs(now.tests)
        self._note_undecided(judgement, [node.name for node in present])
        for node in present:
            name = node.name
            self._judge(
                node, judgement.failed.get(name, ""), judgement.slow.get(name, ""), judgement.num_working.get(name, 0)
            )

    def _note_undecided(self, judgement: PairJudgement, present: Sequence[str]) -> None:
        """Record the nodes that the tests cannot judge. No node is blocked without proof. The next fault starts another
        round, with other nodes."""
        if undecided := [name for name in judgement.undecided if name in present]:
            names = ", ".join(undecided)
            self._transitions.decide(
                "pairs-undecided",
                f"no pair of {names} worked, and it is not known which node is the cause: add a node that works",
            )
        for name, problem in judgement.problems.items():
            self._transitions.decide("pairs-undecided", f"no paired test: {problem}", self._job.nodes[name])

    def _present(self, now: Round, names: Sequence[str]) -> list[Node]:
        nodes = [self._job.nodes[name] for name in names if name in now.nodes]
        return [node for node in nodes if node.state in CHECKED]

    def _judge(self, node: Node, problem: str, slow: str, num_working: int = 0) -> None:
        if problem:
            self._block(node, problem)
        elif slow:
            node.num_slow += 1
            if node.num_slow > 1:
                self._block(node, f"slow in two rounds of checks: {slow}. {BUSY_HINT.format(node=node.name)}")
            else:
                self._transitions.set(node, NodeState.SUSPECT, slow)
                self._transitions.decide("suspect", f"slow in a check: {slow}", node)
        else:
            node.num_slow = 0
            if node.state in (NodeState.NEW, NodeState.SUSPECT):
                self._transitions.set(node, NodeState.READY)
                pairs = f", and worked in a pair with {num_working} of the others" if num_working else ""
                found = node.result_of(self._job.num_rounds)
                passed = "no check found a fault" if found and found.unknown else "it passed its checks"
                self._transitions.decide("admit", f"{passed}{pairs}", node)

    def _block(self, node: Node, reason: str) -> None:
        self._transitions.set(node, NodeState.BLOCKED, reason)
        self._transitions.decide("block", reason, node)


def _problem(found: CheckReport | None) -> str:
    return f"the checks did not end within {CHECK_S:g} s" if found is None else why_failed(found)


def _addresses(nodes: Sequence[Node]) -> set[str]:
    """The addresses of nodes; empty if there are fewer than two addresses."""
    found = {node.report.address for node in nodes if node.report is not None and node.report.address}
    return found if len(found) > 1 else set()
