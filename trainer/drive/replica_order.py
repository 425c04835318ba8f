"""Chooses where the ranks of a node send their replicas, and where they find those of the previous attempt.

    position    0 ----> 1 ----> 2 ----> 3 ---.      each node also holds the parts of the node before it
                ^---------------------------'

So after the loss of one node all parts are left. The loss of two nodes that follow each other loses parts.
"""

from trainer.drive.job import Job, NodeState, Phase
from trainer.drive.records import ReplicaOrder


def replica_order(job: Job, name: str) -> ReplicaOrder:
    """The keepers for the ranks of the node ``name``."""
    return ReplicaOrder(
        neighbour=_neighbour(job, name),
        keepers=_keepers(job),
        forget=job.phase is Phase.TRAIN and name not in job.members and _has_begun(job),
    )


def _neighbour(job: Job, name: str) -> str:
    """The keeper of the next node by position; empty if there is no other node, or if it has no keeper."""
    if name not in job.members or len(job.members) < 2:
        return ""
    following = job.members[(job.members.index(name) + 1) % len(job.members)]
    report = job.nodes[following].report
    return report.keeper if report else ""


def _keepers(job: Job) -> tuple[str, ...]:
    """Addresses of the keepers of all nodes that report, whether they train or not. A node that was replaced still
    holds its parts."""
    nodes = [node for node in job.nodes.values() if node.state is not NodeState.LOST]
    return tuple(node.report.keeper for node in nodes if node.report and node.report.keeper)


def _has_begun(job: Job) -> bool:
    """Whether all ranks of the attempt have loaded their state."""
    reports = [node.report for node in job.member_nodes()]
    return all(report is not None and report.attempt == job.attempt and report.step >= 0 for report in reports)
