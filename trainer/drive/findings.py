"""Decides what follows from a finding."""

from collections.abc import Sequence

from trainer.drive.job import Node, Phase
from trainer.drive.records import Finding
from trainer.drive.rollbacks import STATE_KINDS, Rollbacks
from trainer.drive.transitions import Transitions

CAN_SAVE = frozenset({"compute-straggler", "slow-link", "gpu-throttled"})
"""Kinds of findings about a job that still trains: it saves a checkpoint first."""


class Findings:
    """Judges findings about this job."""

    def __init__(self, transitions: Transitions) -> None:
        self._transitions = transitions
        self._job = transitions.job
        self._config = transitions.config
        self._rollbacks = Rollbacks(transitions)

    def judge(self, finding: Finding) -> None:
        """Restart the job, record advice, or do nothing, as the policy says for the kind.

        Only findings about the state of the training may be older than the attempt that trains.
        """
        acts = finding.kind in self._config.act_on
        if finding.kind in STATE_KINDS and finding.first_step >= 0 and acts:
            self._rollbacks.judge(finding)
        elif finding.attempt == self._job.attempt and self._job.phase is Phase.TRAIN:
            self._judge_attempt(finding, acts=acts and finding.kind not in STATE_KINDS)

    def _judge_attempt(self, finding: Finding, *, acts: bool) -> None:
        nodes = [node for node in self._job.member_nodes() if node.name in finding.hosts]
        if finding.kind == "nic-flap":
            self._count_flaps(nodes)
        elif acts:
            self._act(finding, nodes)
        elif finding.kind in self._config.advise_on or finding.kind in STATE_KINDS:
            self._advise(finding)

    def with_link_losses(self) -> list[Node]:
        """The nodes of the attempt that lost a link within the last ``flaps_within_s``."""
        lost = {name for name, at_s in self._job.flaps if self._transitions.now_s - at_s < self._config.flaps_within_s}
        return [node for node in self._job.member_nodes() if node.name in lost]

    def _act(self, finding: Finding, nodes: Sequence[Node]) -> None:
        reason = finding.summary or finding.kind
        if finding.kind not in CAN_SAVE:
            self._transitions.fault(finding.kind, reason, nodes)
            return
        self._transitions.decide(finding.kind, reason)
        for node in nodes:
            self._transitions.suspect(node, reason)
        self._transitions.save_and(Phase.GATHER, reason)

    def _advise(self, finding: Finding) -> None:
        """Record advice, once for each kind and set of hosts in an attempt."""
        key = f"{finding.attempt} {finding.kind} {','.join(finding.hosts)}"
        if key not in self._job.advised:
            self._job.advised.append(key)
            self._transitions.decide("advise", f"{finding.kind}: {finding.summary}")

    def _count_flaps(self, nodes: Sequence[Node]) -> None:
        job, config = self._job, self._config
        job.flaps = [(name, at_s) for name, at_s in job.flaps if self._transitions.now_s - at_s < config.flaps_within_s]
        for node in nodes:
            job.flaps.append((node.name, self._transitions.now_s))
            count = sum(name == node.name for name, _ in job.flaps)
            if count <= config.max_flaps:
                reason = f"link loss {count} of {node.name}; up to {config.max_flaps} link losses are tolerated"
                self._transitions.decide("advise", reason, node)
                continue
            reason = f"{count} link losses of {node.name}"
            self._transitions.decide("nic-flap", reason, node)
            self._transitions.suspect(node, reason)
            self._transitions.save_and(Phase.GATHER, reason)
