"""Lets a training that went wrong continue with a checkpoint from before its first bad step.

    step          40      50      60      70
    checkpoints   x       x       x
    loss          3.1     3.1  |  7.2     7.1      the finding names step 51
    next attempt          x------------------>     continues after 50 steps, the checkpoint of 60 is set aside

A checkpoint directly before the first bad step is not used, because its last update may be the cause.
"""

from trainer.drive.job import Phase
from trainer.drive.records import Finding, Rollback
from trainer.drive.transitions import Transitions

STATE_KINDS = frozenset({"loss-anomaly"})
"""Kinds of findings about the state of the training."""


class Rollbacks:
    """Judges findings about the state of the training."""

    def __init__(self, transitions: Transitions) -> None:
        self._transitions = transitions
        self._job = transitions.job

    def judge(self, finding: Finding) -> None:
        """Take checkpoints out of use. Stop the attempt if it may contain the bad steps.

        A finding may arrive after its attempt has ended, and while the next one trains already.
        """
        job, step = self._job, finding.first_step
        if not job.attempt - 1 <= finding.attempt <= job.attempt or self._covers(finding):
            return
        job.rollback = Rollback(attempt=job.attempt, before_step=step)
        self._count(step)
        reason = finding.summary or finding.kind
        self._transitions.decide("roll-back", f"checkpoints of {step} steps or more are not used: {reason}")
        if job.phase in (Phase.TRAIN, Phase.SAVE):
            self._transitions.fault(finding.kind, reason, [])

    def _covers(self, finding: Finding) -> bool:
        done = self._job.rollback
        return done is not None and done.attempt >= finding.attempt and done.before_step <= finding.first_step

    def _count(self, step: int) -> None:
        """Count this rollback. A job that goes wrong again in steps that it had reached before makes no progress,
        although each attempt may get some steps further before the finding arrives."""
        job = self._job
        job.num_rollbacks = job.num_rollbacks + 1 if step <= job.reached_step else 1
        job.reached_step = max(job.reached_step, job.best_step)
        job.num_failures = max(job.num_failures, job.num_rollbacks - 1)
