"""One job of a trial as real processes: launcher, ranks and agent. Several jobs share a collector.

launcher -- ranks, the fault inside -- OUT/fired.json: when it began, only for the trial
   '-- agent ----> collector ----> store ----> verdict, read again and again until there is one
                                        '----> `rankscope diagnose hang RUN --store`       while the job hangs
                      spool ------------------> `rankscope diagnose hang --spool`           when all else has ended
"""

import json
import os
import pickle
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from diagnose.findings import Kind
from diagnose.hang.from_bodies import evidence_from_spool
from diagnose.hang.stored import stored_verdict
from diagnose.hang.verdict import judge
from diagnose.model.run_state import RunState
from diagnose.report import hang_object
from telemetry.errors import RankscopeError
from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.forkserver import Program
from tests.integration.processes import free_port
from tests.scenarios.command import rankscope
from tests.scenarios.hang_plan import Trial
from tests.trainer.jobs import figures, small_config
from tests.trainer.launchers import Launched, start_launcher
from tests.ui.named_everywhere import named_everywhere, row_of
from trainer.faults.inject import FIRED_NAME
from trainer.run_options import RunOptions

START_S = 300.0
VERDICT_S = 45.0
"""Longest time from the fault to a verdict."""
DEATH_S = 90.0
"""Longest time from a verdict to the end of a job that ends by its collective timeout."""
SETTLED_S = 7.0
"""If a job is ended sooner after its fault, its end looks like a result of the fault."""
LOOK_S = 0.25
FLOOR_S, FACTOR = 3.0, 5.0
AGENT_OPTIONS = ("--stall-floor", str(FLOOR_S), "--stall-factor", str(FACTOR), "--stall-ceiling", "60")
"""With these options a stall is reported sooner than by default."""
NO_VERDICT = (None, Kind.INSUFFICIENT_EVIDENCE)


@dataclass(slots=True, kw_only=True)
class Found:
    """The result of a trial."""

    trial: Trial
    seconds: float | None = None
    """From the fault to the first verdict in the store; None: there was none."""
    on_the_way: list[tuple[int, ...]] = field(default_factory=list)
    """Wrong ranks that were named before the final verdict."""
    stored: dict[str, Any] = field(default_factory=dict)
    """The command's object, from the store."""
    before: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Ranks that each page, the command and alerts name while the job hangs. Only with ``everywhere``."""
    after: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The same after its end."""
    spooled: dict[str, Any] = field(default_factory=dict)
    """The command's object, from the spool of the dead job."""

    threshold_s: float = 0.0
    """The stall threshold of the agent."""

    @property
    def beyond_s(self) -> float | None:
        """From the stall threshold to the verdict. Negative for a death, which is reported immediately."""
        return None if self.seconds is None else self.seconds - self.threshold_s

    def holds(self, max_beyond_s: float) -> bool:
        """Whether the result is right and in time."""
        in_time = self.beyond_s is not None and self.beyond_s <= max_beyond_s
        return self.exact and self.exact_from_spool and not self.on_the_way and in_time

    @property
    def exact(self) -> bool:
        return accused(self.stored) == self.trial.guilty

    @property
    def exact_from_spool(self) -> bool:
        return accused(self.spooled) == self.trial.guilty


def accused(verdict: dict[str, Any]) -> tuple[int, ...]:
    """Every rank that a command's object names as initiating."""
    return tuple(sorted({rank for finding in verdict.get("findings", []) for rank in finding["ranks"]}))


@contextmanager
def collecting(folder: Path) -> Iterator[CollectorClient]:
    """A collector with an embedded store. It is killed on exit."""
    port = free_port()
    command = ["-m", "ui.cli", "collect", "--no-dashboard", "--port", str(port), "--store", f"embedded:{folder}/store"]
    process = Program(command, folder / "collector.log")
    try:
        with CollectorClient(f"http://127.0.0.1:{port}") as client:
            until(client.healthy, seconds=60, what="the collector")
            yield client
    finally:
        process.kill()
        process.wait()


class Job:
    """A training with a fault inside. ``look_s``: between two reads of its verdict."""

    def __init__(
        self,
        trial: Trial,
        folder: Path,
        run_id: str,
        *,
        num_steps: int,
        num_layers: int = 4,
        global_microbatches: int = 8,
        attempt: int = 0,
        collective_timeout_s: float | None = None,
        look_s: float = LOOK_S,
    ) -> None:
        self.trial = trial
        self.out = folder / (f"{run_id}-{attempt}" if attempt else run_id)
        self.run_id, self.attempt, self.look_s = run_id, attempt, look_s
        self.dies_by_timeout = collective_timeout_s is not None
        self._sizes = {"num_steps": num_steps, "global_microbatches": global_microbatches}
        self._num_layers, self._collective_timeout_s = num_layers, collective_timeout_s
        self._process: Launched | None = None

    @property
    def spool(self) -> Path:
        return self.out / "spool"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, collector: str) -> None:
        self.out.mkdir(parents=True)
        grid = self.trial.topology
        config = small_config(**self._sizes, dp=grid.dp, pp=grid.pp, tp=grid.tp)
        model, data = replace(config.model, num_layers=self._num_layers), replace(config.data, max_bytes=100_000)
        config = replace(config, model=model, data=data, collective_timeout_s=self._collective_timeout_s)
        options = RunOptions(
            out=self.out,
            run_id=self.run_id,
            attempt=self.attempt,
            fault=self.trial.fault,
            collector=collector,
            agent_options=AGENT_OPTIONS,
        )
        (self.out / "job.pickle").write_bytes(pickle.dumps((config, options)))
        self._process = start_launcher(self.out / "job.pickle", self.out / "launcher.log")

    def fired_at_s(self) -> float:
        """Wall clock of the fault; 0 before the fault."""
        with suppress(OSError, ValueError):
            return float(json.loads((self.out / FIRED_NAME).read_text())["at_ns"]) / 1e9
        return 0.0

    def threshold_s(self) -> float:
        """The stall threshold for the usual step time and the options of the agent."""
        usual_s = median([step["step_seconds"] for step in figures(self.out)] or [0.0])
        return max(FACTOR * usual_s, FLOOR_S)

    def wait(self, *, seconds: float) -> None:
        """Wait until the job has ended by itself."""
        until(lambda: not self.running, seconds=seconds, what=f"the end of {self.run_id}")

    def ranks(self) -> list[psutil.Process]:
        """Ranks that still run. The agent has its own session."""
        assert self._process is not None
        session = os.getsid(self._process.pid)
        found = []
        for process in _family(self._process.pid):
            with suppress(ProcessLookupError):
                found += [process] if os.getsid(process.pid) == session else []
        return found

    def interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C in the terminal does."""
        assert self._process is not None
        for process in (*self.ranks(), psutil.Process(self._process.pid)):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGINT)

    def end(self, *, kills: bool) -> None:
        """End the launcher with its ranks, and the agent."""
        assert self._process is not None
        family = _family(self._process.pid)
        self._process.send_signal(signal.SIGKILL if kills else signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(90)
        if self.running:
            self._process.kill()
        self._process.wait()
        _, alive = psutil.wait_procs(family, timeout=30 if kills else 1)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _family(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def run_trial(job: Job, collector: CollectorClient, *, by_command: bool = True, everywhere: bool = False) -> Found:
    """Run a job to its end: start it, wait for a verdict about its fault, read the whole verdict, end the job.

    A job that ends by its collective timeout is not ended by the trial. The verdict from the spool is read later, after
    the collector has ended: :func:`ask_spool`.

    Args:
        by_command: read the verdict with the command, else with its function in this process.
        everywhere: also read pages and alerts, before and after the end.
    """
    found = Found(trial=job.trial)
    job.start(collector.url)
    try:
        until(job.fired_at_s, seconds=START_S, what=f"the fault of {job.trial.name}")
        _await_verdict(job, collector, found)
        found.threshold_s = job.threshold_s()
        found.stored = ask("--store", collector.url, job.run_id) if by_command else _stored(collector, job.run_id)
        until(lambda: time.time() - job.fired_at_s() > SETTLED_S, what="a job that stood for a while")
        if everywhere:
            found.before = named_everywhere(collector, job.run_id)
        if job.dies_by_timeout:
            job.wait(seconds=DEATH_S)
    finally:
        job.end(kills=job.trial.kills)
    if everywhere:
        found.after = named_after_the_end(collector, job.run_id)
    return found


def named_after_the_end(collector: CollectorClient, run_id: str) -> dict[str, tuple[int, ...]]:
    """Ranks that each page, the command and alerts name after the end of the job is stored."""
    over = (RunState.DIED, RunState.ENDED)
    until(lambda: row_of(collector, run_id).state in over, seconds=DEATH_S, every=1.0, what=f"the end of {run_id}")
    return named_everywhere(collector, run_id)


def ask_spool(job: Job, found: Found, *, by_command: bool = True) -> None:
    """Read the verdict from the files that the job left on the disk."""
    if by_command:
        found.spooled = ask("--spool", str(job.spool), job.run_id)
    else:
        found.spooled = hang_object(judge(evidence_from_spool(job.spool, job.run_id)))


def _stored(collector: CollectorClient, run_id: str) -> dict[str, Any]:
    verdict = stored_verdict(collector, run_id, 0)
    return {} if verdict is None else hang_object(verdict)


def ask(*arguments: str) -> dict[str, Any]:
    """The output of `rankscope diagnose hang ... --json`. If the command failed: only ``error``."""
    answer = rankscope("diagnose", "hang", *arguments, "--json")
    if answer.status not in (0, 1):
        return {"error": answer.error[-2000:]}
    verdict: dict[str, Any] = json.loads(answer.out)
    return verdict


def _await_verdict(job: Job, collector: CollectorClient, found: Found) -> None:
    deadline = job.fired_at_s() + VERDICT_S

    def is_decided() -> bool:
        ranks = accused_now(collector, job.run_id)
        now = time.time()
        if ranks and found.seconds is None:
            found.seconds = now - job.fired_at_s()
        if ranks and ranks != job.trial.guilty and ranks not in found.on_the_way:
            found.on_the_way.append(ranks)
        return ranks == job.trial.guilty or now > deadline

    until(is_decided, seconds=VERDICT_S + START_S, every=job.look_s, what="verdict or deadline")
    if found.on_the_way:
        found.seconds = time.time() - job.fired_at_s()


def accused_now(collector: CollectorClient, run_id: str) -> tuple[int, ...]:
    """Ranks that the stored evidence names now. Empty without a verdict."""
    with suppress(RankscopeError):
        verdict = stored_verdict(collector, run_id, 0)
        return () if verdict is None or verdict.kind in NO_VERDICT else verdict.initiating
    return ()
