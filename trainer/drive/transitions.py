"""The transitions of a driven job. A transition changes the state of the job, and records the decision with its
reason."""

from collections.abc import Sequence

from trainer.drive.job import Job, Node, NodeState, Phase
from trainer.drive.records import Decision, Report
from trainer.drive.settings import DriveConfig

CHECKPOINT_FAILED = "checkpoint-failed"


class Transitions:
    """Changes ``job`` at the time ``now_s``, and collects decisions until they are taken."""

    def __init__(self, config: DriveConfig, job: Job) -> None:
        self.config = config
        self.job = job
        self.now_s = job.since_s
        self._decisions: list[Decision] = []

    def decide(self, name: str, reason: str, node: Node | None = None) -> None:
        """Record a decision."""
        self._decisions.append(
            Decision(
                at_ns=round(self.now_s * 1e9),
                attempt=self.job.attempt,
                name=name,
                reason=reason,
                node=node.name if node else "",
            )
        )

    def taken(self) -> list[Decision]:
        """The decisions since the last call."""
        made, self._decisions = self._decisions, []
        return made

    def turn(self, phase: Phase, reason: str) -> None:
        """Enter a phase."""
        self.job.phase, self.job.reason, self.job.since_s = phase, reason, self.now_s

    def set(self, node: Node, state: NodeState, reason: str = "") -> None:
        """Give a node a state."""
        node.state, node.reason = state, reason

    def suspect(self, node: Node, reason: str) -> None:
        """Mark a node that trains as a possible cause of a fault."""
        if node.state is NodeState.ACTIVE:
            node.num_faults += 1
            self.set(node, NodeState.SUSPECT, reason)

    def fault(self, name: str, reason: str, suspects: Sequence[Node], *, check: bool = True) -> None:
        """Stop the attempt. If ``check``, the suspects are checked, or all nodes of the attempt if there are none."""
        job = self.job
        if job.phase not in (Phase.TRAIN, Phase.SAVE):
            return
        job.num_failures += 1
        self.decide(name, reason, suspects[0] if len(suspects) == 1 else None)
        if check:
            for node in suspects or job.member_nodes():
                self.suspect(node, reason)
        if job.phase is Phase.TRAIN:
            job.after_stop = Phase.GATHER
        if job.num_failures > self.config.max_failures:
            job.after_stop = Phase.GAVE_UP
            reason = f"{job.num_failures} attempts in a row made no progress; the last one: {reason}"
        self.turn(Phase.STOP, reason)

    def note_checkpoints(self, reports: Sequence[Report]) -> str:
        """Why the newest checkpoint could not be written; empty if it could. The reason is recorded once, and again
        only after a checkpoint was written. The job continues."""
        failed = next((report for report in reports if report.checkpoint_problem), None)
        key = f"{self.job.attempt} {CHECKPOINT_FAILED}"
        if failed is None:
            self.job.advised = [each for each in self.job.advised if each != key]
            return ""
        if key not in self.job.advised:
            self.job.advised.append(key)
            self.decide(CHECKPOINT_FAILED, failed.checkpoint_problem, self.job.nodes[failed.node])
        return failed.checkpoint_problem

    def save_and(self, phase: Phase, reason: str) -> None:
        """Write a checkpoint, stop, then go to ``phase``."""
        if self.job.phase is Phase.TRAIN:
            self.job.after_stop = phase
            self.turn(Phase.SAVE, reason)
