"""Rounds of node checks: which nodes are checked when, and what follows from the results.

new, suspect --round--> ready
     |  '--slow once--> suspect --another round--> ready | blocked
     '--failed--> blocked
"""

from trainer.drive.checks import slow_nodes, why_failed
from trainer.drive.job import Node, NodeState, Round
from trainer.drive.records import CheckReport
from trainer.drive.transitions import Transitions

GATHER_S = 10.0
"""At the start, how long the driver waits for spares before it checks the nodes that are there."""
CHECK_S = 180.0
"""A round of checks ends after this time. A node without a result has failed."""
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
        """Check the nodes that wait for it, if no rank lives on them."""
        job, nodes = self._job, self.waiting
        if not self._config.checks:
            for node in nodes:
                self._transitions.set(node, NodeState.READY)
            return
        missing = len(job.nodes) < self._config.num_nodes + self._config.num_spares
        early = job.attempt < 0 and missing and self._transitions.now_s - job.since_s < GATHER_S
        if not nodes or job.round is not None or early or any(node.has_ranks for node in nodes):
            return
        if len(nodes) == 1:  # another node for comparison
            nodes = [*nodes, *job.in_state(NodeState.READY)[:1]]
        job.num_rounds += 1
        job.round = Round(
            number=job.num_rounds, nodes=tuple(node.name for node in nodes), since_s=self._transitions.now_s
        )
        self._transitions.decide("check", f"check {', '.join(job.round.nodes)}")

    def end(self) -> None:
        """Judge a round when every node has its result."""
        job, now = self._job, self._job.round
        if now is None:
            return
        nodes = [job.nodes[name] for name in now.nodes]
        present = [node for node in nodes if node.state in CHECKED]
        results = {node.name: found for node in present if (found := node.result_of(now.number)) is not None}
        if len(results) < len(present) and self._transitions.now_s - now.since_s < CHECK_S:
            return
        job.round = None
        slow = slow_nodes(results, self._config.slow_ratio)
        for node in present:
            self._judge_check(node, results.get(node.name), slow.get(node.name, ""))

    def _judge_check(self, node: Node, found: CheckReport | None, slow: str) -> None:
        if problem := f"the checks did not end within {CHECK_S:g} s" if found is None else why_failed(found):
            self._block(node, problem)
        elif slow:
            node.num_slow += 1
            if node.num_slow > 1:
                self._block(node, f"slow in two rounds of checks: {slow}")
            else:
                self._transitions.set(node, NodeState.SUSPECT, slow)
                self._transitions.decide("suspect", f"slow in a check: {slow}", node)
        else:
            node.num_slow = 0
            if node.state in (NodeState.NEW, NodeState.SUSPECT):
                self._transitions.set(node, NodeState.READY)
                self._transitions.decide("admit", "it passed its checks", node)

    def _block(self, node: Node, reason: str) -> None:
        self._transitions.set(node, NodeState.BLOCKED, reason)
        self._transitions.decide("block", reason, node)
