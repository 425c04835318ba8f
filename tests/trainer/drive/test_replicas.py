"""A real driven job continues from the memory of the nodes after executors are killed."""

from pathlib import Path

import pytest

from tests.deadline import until
from tests.trainer.drive.driven import PATIENCE_S, DrivenJob, driven_job
from tests.trainer.drive.test_drive import NODES, undisturbed_losses
from tests.trainer.jobs import figures
from tests.trainer.recorded import marks_of
from trainer.checkpoint.folder import complete_steps
from trainer.drive.folder import JobFolder

pytestmark = [pytest.mark.gloo, pytest.mark.long, pytest.mark.timeout(600)]
EVERY, NUM_STEPS = 20, 34
MOST_REPEATED = 4
"""A replica starts after the previous one is sent, which takes some of these short steps."""


def resumed(job: DrivenJob) -> list[str]:
    """The marks of rank 0 about the states from which it continued, oldest first."""
    marks = [mark for node in job.state.nodes for mark in marks_of(JobFolder(job.out).node(node), 0)]
    return [text for name, text in marks if name == "resumed"]


def test_job_resumes_from_memory_after_one_killed_executor_and_from_storage_after_all(tmp_path: Path) -> None:
    """One node can be lost without a checkpoint in storage. If both are lost, storage is used."""
    out = tmp_path / "job"
    options = ("--replicas", "--checkpoint-every", str(EVERY), "--no-checks", "--steps", str(NUM_STEPS))
    with driven_job(out, *NODES, *options) as job:
        job.wait_for_attempt(0)
        job.wait_for_steps(8)
        job.kill(job.executor(job.state.members[0]))
        job.wait_for_attempt(1)
        assert complete_steps(out / "checkpoints") == []
        steps = [step["step"] for step in figures(out)]
        assert len(steps) - len(set(steps)) <= MOST_REPEATED, steps
        (first,) = resumed(job)
        assert "from the memory of the nodes" in first

        until(lambda: complete_steps(out / "checkpoints"), seconds=PATIENCE_S, what="a checkpoint in storage")
        for node in job.state.members:
            job.kill(job.executor(node))
        job.wait_for_attempt(2)
        (second,) = set(resumed(job)) - {first}
        assert f"from the checkpoint after step {EVERY - 1}" in second
        assert job.finish() == 0, job.words
        until(lambda: not job.left(), seconds=PATIENCE_S, what="the end of every process")
    assert job.losses() == undisturbed_losses(tmp_path / "undisturbed", NUM_STEPS)
