"""Real driven jobs whose processes are killed."""

import signal
import subprocess
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from tests.deadline import until
from tests.scenarios.command import rankscope
from tests.trainer.drive.driven import (
    COMMAND,
    PATIENCE_S,
    TINY,
    DrivenJob,
    decisions_of,
    driven_job,
    slowed,
    with_tests,
)
from tests.trainer.drive.paced import start_paced
from tests.trainer.jobs import figures
from trainer.checkpoint.folder import complete_steps, rolled_back_name
from trainer.drive.folder import DRIVER, DriverPlace, JobFolder
from trainer.drive.job import NodeState, Phase

pytestmark = [pytest.mark.gloo, pytest.mark.timeout(600)]

NODES = ("--nodes", "2", "--spares", "1", "--no-own-collector")
FOREVER = ("--steps", "100000")
SELDOM = ("--checkpoint-every", "100000")
NUM_STEPS = 20


def undisturbed_losses(out: Path, num_steps: int, *, is_paced: bool = False) -> dict[int, set[float]]:
    """Losses of the same training without kills."""
    words = (*TINY[:-2], "--steps", str(num_steps), "--out", str(out), "--no-telemetry")
    if is_paced:
        log = out.with_suffix(".log")
        assert start_paced("train", *words, log=log, unpaced=out).wait(PATIENCE_S) == 0, log.read_text()
    else:
        train = [*COMMAND[:-1], "train", *words]
        subprocess.run(train, check=True, timeout=PATIENCE_S, capture_output=True, env=with_tests())
    return DrivenJob(out, ()).losses()


def test_job_continues_with_the_same_losses_when_any_process_is_killed(tmp_path: Path) -> None:
    """A rank, the driver, an executor, and the command itself, one after the other."""
    out = tmp_path / "job"
    with driven_job(out, *NODES, "--no-checks", "--steps", str(NUM_STEPS), is_paced=True) as job:
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
        job.stop_pacing()
        assert job.finish() == 0, job.words
        until(lambda: not job.left(), seconds=PATIENCE_S, what="the end of every process")
        status = rankscope("drive", "status", "--out", out)
        assert (status.status, "done: all steps are done" in status.out) == (0, True), status
        assert [name for name in decisions_of(out) if name.endswith(("failed", "lost"))] == [
            "rank-failed",
            "executor-lost",
        ]
    assert job.losses() == undisturbed_losses(tmp_path / "undisturbed", NUM_STEPS, is_paced=True)


def test_sigterm_saves_the_step_and_the_same_command_resumes_the_job(tmp_path: Path) -> None:
    """No other checkpoint is due."""
    with driven_job(tmp_path, *NODES, "--no-checks", *SELDOM, *FOREVER, is_paced=True) as job:
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
def test_job_rolls_back_to_before_a_loss_anomaly_although_the_driver_is_killed(tmp_path: Path) -> None:
    out = tmp_path / "job"
    options = ("--no-checks", "--act-on", "loss-anomaly", "--keep", "9", "--steps", "30")
    with driven_job(out, *NODES, *options) as job:
        job.wait_for_attempt(0)
        job.wait_for_steps(6)
        first_bad = max(job.losses()) - 3
        report_anomaly(out, job.state.run_id, first_bad)
        job.kill(job.driver())
        job.wait_for_attempt(1)
        (set_aside,) = (out / "checkpoints").glob("*.rolled-back")
        assert set_aside.name >= rolled_back_name(first_bad)
        assert job.finish() == 0, job.words
    steps = [step["step"] for step in figures(out)]
    resumed = [later for earlier, later in pairwise(steps) if later <= earlier]
    assert len(resumed) == 1
    assert resumed[0] < first_bad
    assert {"roll-back", "loss-anomaly", "take-over"} <= set(decisions_of(out))
    assert job.losses() == undisturbed_losses(tmp_path / "undisturbed", 30)


def report_anomaly(out: Path, run_id: str, first_step: int) -> None:
    """Send the alert that the watcher would send."""
    place = JobFolder(out).read(DRIVER, DriverPlace)
    assert place is not None
    labels = {"alertname": "loss-anomaly", "run_id": run_id, "attempt": "0"}
    annotations = {"summary": "loss jumped", "details": f"detector: loss-anomaly\nsteps: {first_step}-{first_step + 2}"}
    body = {"alerts": [{"status": "firing", "labels": labels, "annotations": annotations}]}
    headers = {"Authorization": f"Bearer {place.token}"}
    answer = httpx.post(f"{place.url}/v1/findings", json=body, headers=headers, trust_env=False, verify=False)
    assert answer.status_code == 204, answer.text


@pytest.mark.long
def test_operator_can_pause_and_resume_a_job_and_replace_and_drain_a_node(tmp_path: Path) -> None:
    def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, *arguments, "--out", str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)

    with driven_job(tmp_path, *NODES, "--no-checks", *FOREVER) as job:
        job.wait_for_attempt(0)
        assert ask("pause").stdout.startswith("pause: the driver has accepted the request")
        until(lambda: job.state.phase is Phase.PAUSED, seconds=PATIENCE_S, what="the pause")
        assert ask("resume").returncode == 0
        job.wait_for_attempt(1)
        before = job.state.members
        (spare,) = job.state.nodes.keys() - set(before)
        assert ask("replace", before[1]).stdout.startswith(f"replace {before[1]}: the driver has accepted the request")
        job.wait_for_attempt(2)
        assert job.state.members == (before[0], spare)
        assert job.state.nodes[before[1]].state is NodeState.READY
        assert ask("drain", before[0]).returncode == 0
        job.wait_for_attempt(3)
        assert set(job.state.members) == {before[1], spare}
        assert job.state.nodes[before[0]].state is NodeState.DRAINED
        refused = ask("drain", "node-7")
        assert (refused.returncode, "no node 'node-7'" in refused.stderr) == (2, True)
        status = ask("status")
        assert "drained" in status.stdout
        assert f" replace {before[1]}: an operator asked to replace it" in status.stdout
        assert f" drain {before[0]}: an operator asked to drain it" in status.stdout


@pytest.mark.long
def test_a_slowed_spare_fails_its_check_and_is_not_admitted(tmp_path: Path) -> None:
    """The spare runs only a quarter of the time."""
    with driven_job(tmp_path, *NODES, *FOREVER) as job:
        until(lambda: "node-2" in job.state.nodes, seconds=PATIENCE_S, what="the spare")
        with slowed(job.executor("node-2")):
            until(lambda: job.state.nodes["node-2"].state is NodeState.BLOCKED, seconds=PATIENCE_S, what="the block")
        job.wait_for_attempt(0)
        assert "slow in two rounds" in job.state.nodes["node-2"].reason
        assert job.state.members == ("node-0", "node-1")
