"""Prolog, task prolog and epilog of Slurm, with the variables that Slurm sets, real ranks, an agent and a collector."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

import pytest

from telemetry.errors import RankscopeError
from telemetry.stores.queries import HighWater
from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.deploy.compose_file import DEPLOY, ROOT
from tests.integration.processes import COLLECT, Part, free_port
from tests.integration.writer import RUN
from tests.parts import require, require_root

SCRIPTS = DEPLOY / "slurm"
JOB = "4711"
NOBODY = 65534
NUM_RANKS = 1
NUM_STEPS = 10


def test_shellcheck_accepts_the_scripts() -> None:
    scripts = [*SCRIPTS.glob("*.sh"), ROOT / "scripts/install-parts", ROOT / ".ci/run"]
    done = subprocess.run([require("shellcheck"), *scripts], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node with a job, as Slurm sees it."""

    spools: Path
    url: str
    collector: Part
    variables: dict[str, str]

    @property
    def spool(self) -> Path:
        return self.spools / JOB

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script, and kill its process group when it ends, as slurmd does."""
        started = subprocess.Popen(
            [SCRIPTS / script], env=self.variables, stdout=PIPE, stderr=PIPE, text=True, cwd="/", process_group=0
        )
        status = started.wait(90)
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        out, error = started.communicate()
        assert status == 0, error
        return subprocess.CompletedProcess(started.args, status, out, error)

    def record(self) -> None:
        """Record with a rank, with the variables of the task prolog."""
        words = [shlex.split(line) for line in self.run("task-prolog.sh").stdout.splitlines()]
        exported = dict(word.split("=", 1) for command, word in words if command == "export")
        rank = [sys.executable, "-m", "tests.integration.writer", exported["RANKSCOPE_SPOOL"], "0", "1", str(NUM_STEPS)]
        subprocess.run(rank, cwd=ROOT, check=True, timeout=60)

    def num_stored(self) -> int:
        """One past the number of the last stored span."""
        with CollectorClient(self.url) as client:
            try:
                return sum(client.read(HighWater(table="spans", run_id=RUN, attempt=0))["next_seq"].to_pylist())
            except RankscopeError:
                return 0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    require_root("prolog and epilog change the user")
    program = tmp_path / "rankscope"
    program.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m rankscope "$@"\n')
    program.chmod(0o755)
    port = free_port()
    settings = tmp_path / "agent.env"
    settings.write_text(
        f"RANKSCOPE_COLLECTOR=http://127.0.0.1:{port}\nPYTHONDONTWRITEBYTECODE=1\nsleep 0.5  # a slow disk\n"
    )
    made = Node(
        spools=tmp_path / "spools",
        url=f"http://127.0.0.1:{port}",
        collector=Part(
            "collector", [sys.executable, "-c", COLLECT, "embedded:", str(port)], tmp_path / "collector.log"
        ),
        variables={
            "SLURM_JOB_ID": JOB,
            "SLURM_JOB_UID": str(os.getuid()),
            "RANKSCOPE_AGENT_ENV": str(settings),
            "RANKSCOPE_SPOOLS": str(tmp_path / "spools"),
            "RANKSCOPE_PROGRAM": str(program),
            "RANKSCOPE_EPILOG_S": "1",
        },
    )
    try:
        yield made
    finally:
        made.run("epilog.sh")
        made.collector.kill()


@pytest.mark.long
def test_records_of_a_job_are_stored_and_the_epilog_deletes_its_spool(node: Node) -> None:
    node.collector.start()
    node.run("prolog.sh")
    node.record()
    until(node.num_stored, what="records that the agent of the prolog sent")
    assert node.run("epilog.sh").stderr == ""
    assert node.num_stored() == NUM_STEPS * 22 - 1
    assert list(node.spools.iterdir()) == []


@pytest.mark.long
def test_epilog_without_a_collector_keeps_the_spool_and_prints_the_command_that_sends_it(node: Node) -> None:
    node.run("prolog.sh")
    node.record()
    told = node.run("epilog.sh").stderr
    assert f"agent --spool {node.spool}" in told
    assert any(node.spool.glob("*/*/rank-*"))
    node.collector.start()
    with CollectorClient(node.url) as client:
        until(client.healthy, what="the collector")
    assert node.run("epilog.sh").stderr == ""
    assert node.num_stored() == NUM_STEPS * 22 - 1
    assert not node.spool.exists()


def test_spool_and_agent_belong_to_the_user_of_the_job_until_the_epilog(node: Node) -> None:
    node.variables["SLURM_JOB_UID"] = str(NOBODY)
    node.run("prolog.sh")
    assert (node.spool.stat().st_uid, node.spool.stat().st_mode & 0o777) == (NOBODY, 0o700)
    agent = Path("/proc", (node.spools / f"{JOB}.pid").read_text().strip())
    until(lambda: agent.stat().st_uid == NOBODY, what="an agent of the user")
    node.run("epilog.sh")
    assert not agent.exists()
    assert list(node.spools.iterdir()) == []


def test_epilog_of_a_job_without_a_spool_does_nothing(node: Node) -> None:
    assert node.run("epilog.sh").stderr == ""


def test_task_prolog_keeps_the_spool_that_a_job_chose(node: Node) -> None:
    node.spool.mkdir(parents=True)
    assert node.run("task-prolog.sh").stdout == f"export RANKSCOPE_SPOOL={node.spool}\n"
    node.variables["RANKSCOPE_SPOOL"] = "/chosen"
    assert node.run("task-prolog.sh").stdout == ""
