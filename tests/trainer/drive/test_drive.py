"""Real driven jobs whose processes are killed."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.deadline import until
from tests.trainer.drive.driven import COMMAND, PATIENCE_S, TINY, DrivenJob, decisions_of, driven_job, slowed
from trainer.checkpoint.folder import complete_steps
from trainer.drive.job import NodeState, Phase

pytestmark = [pytest.mark.gloo, pytest.mark.timeout(600)]

NODES = ("--nodes", "2", "--spares", "1", "--no-own-collector")
FOREVER = ("--steps", "100000")


def undisturbed_losses(out: Path, num_steps: int) -> dict[int, set[float]]:
    """Of the same training, with nothing killed."""
    command = [*COMMAND[:-1], "train", *TINY[:-2], "--steps", str(num_steps), "--out", str(out), "--no-telemetry"]
    subprocess.run(command, check=True, timeout=PATIENCE_S, capture_output=True)
    return DrivenJob(out, ()).losses()


def test_every_process_may_be_killed_and_the_losses_stay_the_same(tmp_path: Path) -> None:
    """A rank, the driver, an executor, and the command itself, one after the other."""
    out = tmp_path / "job"
    with driven_job(out, *NODES, "--no-checks", "--steps", "40") as job:
        job.wait_for_attempt(0)
        job.kill(job.ranks()[1])
        job.wait_for_attempt(1)

        ranks, driver = job.ranks(), job.driver()
        job.kill(driver)
        job.wait_for_steps()
        assert job.ranks() == ranks, "ranks were restarted although only the driver was killed"
        until(lambda: "take-over" in decisions_of(out), seconds=PATIENCE_S, what="another driver")

        job.kill(job.executor(job.state.members[0]))
        job.wait_for_attempt(2)

        ranks = job.ranks()
        assert job.process is not None
        job.kill(job.process.pid)
        job.process.wait()
        job.wait_for_steps()
        job.start()
        until(lambda: decisions_of(out).count("take-over") > 1, seconds=PATIENCE_S, what="a third driver")
        assert job.ranks() == ranks, "ranks were restarted although only the command was killed"
        assert job.finish() == 0, job.words
        until(lambda: not job.left(), seconds=PATIENCE_S, what="the end of every process")
        assert [name for name in decisions_of(out) if name.endswith(("failed", "lost"))] == [
            "rank-failed",
            "executor-lost",
        ]
    assert job.losses() == undisturbed_losses(tmp_path / "undisturbed", 40)


def test_sigterm_saves_the_step_and_the_same_command_continues(tmp_path: Path) -> None:
    with driven_job(tmp_path, *NODES, "--no-checks", *FOREVER) as job:
        job.wait_for_attempt(0)
        assert job.process is not None
        job.executor("node-0"), job.executor("node-1"), job.ranks()
        job.process.send_signal(signal.SIGTERM)
        assert job.finish() == 128 + signal.SIGTERM
        until(lambda: not job.left(), seconds=PATIENCE_S, what="the end of every process")
        done = max(job.losses()) + 1
        assert complete_steps(tmp_path / "checkpoints")[0] == done
        job.options = (*job.options[:-1], str(done + 3))
        job.start()
        assert job.finish() == 0, job.words
    assert sorted(job.losses()) == list(range(done + 3))
    assert all(len(losses) == 1 for losses in job.losses().values())


@pytest.mark.long
def test_operators_pause_drain_and_resume(tmp_path: Path) -> None:
    def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, *arguments, "--out", str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)

    with driven_job(tmp_path, *NODES, "--no-checks", *FOREVER) as job:
        job.wait_for_attempt(0)
        assert ask("pause").returncode == 0
        until(lambda: job.state.phase is Phase.PAUSED, seconds=PATIENCE_S, what="the pause")
        assert ask("resume").returncode == 0
        job.wait_for_attempt(1)
        assert ask("drain", "node-0").returncode == 0
        job.wait_for_attempt(2)
        assert set(job.state.members) == {"node-1", "node-2"}
        assert job.state.nodes["node-0"].state is NodeState.DRAINED
        refused = ask("drain", "node-7")
        assert (refused.returncode, "no node 'node-7'" in refused.stderr) == (2, True)
        status = ask("status")
        assert "node-0" in status.stdout
        assert "drained" in status.stdout


@pytest.mark.long
def test_a_slowed_spare_fails_its_check_and_is_not_admitted(tmp_path: Path) -> None:
    """It gets a fifth of the time of a core."""
    with driven_job(tmp_path, *NODES, *FOREVER) as job:
        until(lambda: "node-2" in job.state.nodes, seconds=PATIENCE_S, what="the spare")
        with slowed(job.executor("node-2")):
            until(lambda: job.state.nodes["node-2"].state is NodeState.BLOCKED, seconds=PATIENCE_S, what="the block")
        job.wait_for_attempt(0)
        assert "slow in two rounds" in job.state.nodes["node-2"].reason
        assert job.state.members == ("node-0", "node-1")
