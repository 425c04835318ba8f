"""One training of a framework under torchrun. rankscope is installed, and switched on only by variables.

new environment, pip install 'rankscope[train,agent]'
    launcher --- ranks: a script without rankscope (attach_jobs/), the fault inside one of them
                    '--> agent ----> collector ----> store          the agent is started by a rank
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.integration.processes import free_port
from tests.scenarios.attach_pages import missing_parts
from tests.scenarios.command import rankscope
from tests.scenarios.hang_job import LOOK_S, accused, accused_now, ask

JOBS = Path(__file__).parent / "attach_jobs"
PYTHON = os.environ.get("RANKSCOPE_ADAPTERS_PYTHON", str(JOBS.parents[2] / "build/adapters/bin/python"))
BIN = Path(PYTHON).parent
PLAIN, HEALTHY, SLOWED, STOPPED = "plain", "healthy", "slowed", "stopped"
KINDS = (PLAIN, HEALTHY, SLOWED, STOPPED)
FACTOR = 1.5
NUM_STEPS, MANY_STEPS = 40, 120
START_S, VERDICT_S, END_S, AGENT_S = 180.0, 60.0, 300.0, 60.0
STRAGGLER = "compute-straggler"
OWN_VARIABLES = ("RANKSCOPE", "PYTHON", "VIRTUAL_ENV", "TRIAL_", "SLURM_", "RANK", "LOCAL_RANK", "WORLD_SIZE")
"""Prefixes of variables that a training does not inherit."""
COMMON = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "DS_ACCELERATOR": "cpu",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A script, and how it is started."""

    name: str
    title: str
    package: str
    """The distribution whose version is shown."""
    script: str
    num_ranks: int = 2
    launcher: str = "torchrun"


FRAMEWORKS = (
    Framework(name="ddp", title="plain DDP", package="torch", script="ddp", num_ranks=4),
    Framework(name="fsdp2", title="plain FSDP2", package="torch", script="fsdp2", num_ranks=4),
    Framework(name="transformers", title="transformers Trainer", package="transformers", script="transformers_trainer"),
    Framework(name="accelerate", title="Accelerate", package="accelerate", script="accelerate_loop"),
    Framework(name="lightning", title="Lightning", package="lightning", script="lightning_trainer"),
    Framework(name="deepspeed", title="DeepSpeed", package="deepspeed", script="deepspeed_zero"),
    Framework(name="torchft", title="torchft", package="torchft-nightly", script="torchft_ddp", launcher="torchft"),
    Framework(name="ray", title="Ray Train", package="ray", script="ray_train", launcher="python"),
    Framework(name="trl", title="TRL", package="trl", script="trl_grpo"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One training, and its fault."""

    framework: Framework
    kind: str
    rank: int
    """The rank at fault; -1 without a fault."""
    stop: str
    """``TRIAL_STOP`` of the script."""
    out: Path

    @property
    def run_id(self) -> str:
        return f"{self.framework.name}-{self.kind}"

    @property
    def spool(self) -> Path:
        return self.out / "spool"

    def fired_at_s(self) -> float:
        """Wall clock of the stop; 0 before the stop."""
        path = self.out / "fired"
        return path.stat().st_mtime if path.exists() else 0.0

    def losses(self) -> list[str]:
        """The text of the losses of each rank."""
        names = [self.out / f"losses-{rank}" for rank in range(self.framework.num_ranks)]
        return [name.read_text() if name.exists() else "" for name in names]


@dataclass(slots=True, kw_only=True)
class Found:
    """The result of a trial."""

    trial: Trial
    named: list[int] = field(default_factory=list)
    """Ranks that the command names."""
    others: list[str] = field(default_factory=list)
    """Other findings above info, and wrong earlier verdicts."""
    losses: list[str] = field(default_factory=list)
    not_shown: list[str] = field(default_factory=list)
    """Parts of a step that the heat map or the timeline lacks."""
    seconds: float | None = None
    """From the stop to the verdict."""
    error: str = ""
    load: float = 0.0
    """Load average of the machine at the end."""
    words: str = ""

    @property
    def holds(self) -> bool:
        expected = [self.trial.rank] if self.trial.kind in (SLOWED, STOPPED) else []
        return not self.error and self.named == expected and not self.others and not self.not_shown


def run_trial(trial: Trial, collector: CollectorClient) -> Found:
    """Train, and run the commands of rankscope."""
    found = Found(trial=trial)
    try:
        with _running(trial, collector.url) as launchers:
            if trial.kind == STOPPED:
                until(trial.fired_at_s, seconds=START_S, what=f"the stop of {trial.run_id}")
                _await_verdict(found, collector)
            else:
                for launcher in launchers:
                    assert launcher.wait(END_S) == 0, _log(trial).read_text()[-2000:]
        if trial.kind in (HEALTHY, SLOWED):
            until(lambda: not _agents(trial), seconds=AGENT_S, every=LOOK_S, what=f"the end of the agent of {trial}")
            _ask_diagnose(found, collector)
            found.not_shown = missing_parts(collector, trial.run_id, trial.framework.num_ranks)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        found.error = str(error)
    found.losses, found.load = trial.losses(), os.getloadavg()[0]
    return found


@contextmanager
def _running(trial: Trial, url: str) -> Iterator[list["subprocess.Popen[bytes]"]]:
    """The launchers of the job. All its processes are killed on exit."""
    trial.out.mkdir(parents=True)
    environment = _environment(trial, url)
    with ExitStack() as ending, tempfile.TemporaryDirectory(prefix="ray-") as ray, _log(trial).open("ab") as log:
        environment["RAY_TMPDIR"] = ray  # paths of sockets are short

        def start(command: list[str], **variables: str) -> "subprocess.Popen[bytes]":
            process = subprocess.Popen(
                command, env=environment | variables, cwd=trial.out, stdout=log, stderr=log, start_new_session=True
            )
            ending.callback(_kill_family, process)
            return process

        ending.callback(_kill_agents, trial)
        yield _launch(trial.framework, start)


def _launch(framework: Framework, start: Any) -> list["subprocess.Popen[bytes]"]:
    script = str(JOBS / f"{framework.script}.py")
    torchrun = [str(BIN / "torchrun"), "--nproc-per-node"]
    if framework.launcher == "python":
        return [start([PYTHON, script], RANKS=str(framework.num_ranks))]
    if framework.launcher == "torchrun":
        return [start([*torchrun, str(framework.num_ranks), "--master-port", str(free_port()), script])]
    num, port = str(framework.num_ranks), free_port()
    start([str(BIN / "torchft_lighthouse"), "--min_replicas", num, "--bind", f"[::]:{port}"])
    variables = {"NUM_REPLICA_GROUPS": num, "TORCHFT_LIGHTHOUSE": f"http://localhost:{port}"}
    return [
        start([*torchrun, "1", "--master-port", str(free_port()), script], REPLICA_GROUP_ID=str(group), **variables)
        for group in range(framework.num_ranks)
    ]


def _environment(trial: Trial, url: str) -> dict[str, str]:
    """The variables of the job: those of the trial, and those of rankscope unless it is plain."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OWN_VARIABLES)}
    num_steps = MANY_STEPS if trial.kind == STOPPED else NUM_STEPS
    faults = {SLOWED: "slow", STOPPED: "stop"}
    own = {
        **COMMON,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "STEPS": str(num_steps),
        "TRIAL_OUT": str(trial.out),
        "TRIAL_FAULT": faults.get(trial.kind, ""),
        "TRIAL_RANK": str(trial.rank),
        "TRIAL_FACTOR": str(FACTOR),
        "TRIAL_STOP": trial.stop,
    }
    rankscope_variables = {
        "RANKSCOPE_COLLECTOR": url,
        "RANKSCOPE_RUN": trial.run_id,
        "RANKSCOPE_SPOOL": str(trial.spool),
    }
    return kept | own | ({} if trial.kind == PLAIN else rankscope_variables)


def _log(trial: Trial) -> Path:
    return trial.out / "job.log"


def _agents(trial: Trial) -> list[psutil.Process]:
    """The agents of the trial. They have sessions of their own."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if str(trial.spool) in (process.info["cmdline"] or ()):
            found.append(process)
    return found


def _kill_agents(trial: Trial) -> None:
    if trial.kind == STOPPED:
        _kill(_agents(trial))


def _kill_family(process: "subprocess.Popen[bytes]") -> None:
    family: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    _kill([member for member in family if "telemetry.agent" not in _command_of(member)])


def _command_of(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return list(process.cmdline())
    return []


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=10)


def _await_verdict(found: Found, collector: CollectorClient) -> None:
    trial = found.trial
    deadline = trial.fired_at_s() + VERDICT_S

    def is_decided() -> bool:
        ranks = accused_now(collector, trial.run_id)
        if ranks and ranks != (trial.rank,):
            found.others.append(f"rank {ranks} on the way")
        return ranks == (trial.rank,) or time.time() > deadline

    until(is_decided, seconds=VERDICT_S + START_S, every=LOOK_S, what="verdict or deadline")
    found.seconds = time.time() - trial.fired_at_s()
    verdict = ask("--store", collector.url, trial.run_id)
    found.named = list(accused(verdict))
    found.words = "; ".join(finding["summary"] for finding in verdict.get("findings", [])) or verdict.get("error", "")


def _ask_diagnose(found: Found, collector: CollectorClient) -> None:
    trial = found.trial
    answer = rankscope("diagnose", trial.run_id, "--store", collector.url, "--json")
    assert answer.status in (0, 1), answer.error
    findings = json.loads(answer.out)["findings"]
    right = [finding for finding in findings if _is_right(finding, trial)]
    found.named = [rank for finding in right for rank in finding["ranks"]]
    found.others = [
        f"{finding['kind']} {finding['ranks']}: {finding['summary']}"
        for finding in findings
        if finding not in right and (finding["severity"] != "info" or finding["ranks"])
    ]
    found.words = "; ".join(f"{finding['severity']} {finding['summary']}" for finding in findings)


def _is_right(finding: dict[str, Any], trial: Trial) -> bool:
    return finding["kind"] == STRAGGLER and finding["ranks"] == [trial.rank] and finding["severity"] != "info"
