"""The demo: collector, agent and eight ranks as real processes, then the findings and the injected fault.

collector (store, dashboard)  <---  agent  <---  rank files  <---  8 ranks (trainer, with a fault)
         ^                                                             |
         +-- diagnose: reads only the store, not truth.json            +--> truth.json

All processes end with the demo, for any reason.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnose.hang.stored import stored_verdict
from diagnose.model.load import newest_attempt
from diagnose.pipeline import Report, diagnose_run
from telemetry.errors import RankscopeError, UnreachableError
from telemetry.printable import log
from telemetry.process.child_process import child_environment, python_module
from telemetry.settings import DEFAULT_PORT
from telemetry.stores.queries import Samples, Steps
from telemetry.wire.client import CollectorClient
from trainer.output import make_out, open_output
from ui.cli.own_collector import reason_in
from ui.cli.ports import claimed_port

RANKSCOPE = python_module("ui.cli")
DEFAULT_OUT = Path("rankscope-out")
LOG = "collector.log"
START_S = 120.0
"""Time limit for the start of the collector, which is slow on a busy machine."""
FIRST_STEP_S = 300.0
"""Time limit for the first step. On a busy machine, the start of eight ranks takes minutes."""
STALL_S = 90.0
"""Time limit for every other step."""
STOP_S = 20.0
_running: list["subprocess.Popen[bytes]"] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """Options of the demo."""

    out: Path
    run_id: str
    recipe: str
    num_steps: int
    num_microbatches: int | None
    """None: those of the recipe."""
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of the demo."""

    report: Report
    truth: dict[str, Any]
    losses: list[float]
    """The loss of each step, reported by the last pipeline stage."""
    train_status: int
    ended_by_demo: bool
    """Whether the demo ended the training, because it made no progress."""

    @property
    def exit_status(self) -> int:
        """0 if the training succeeded, or if the injected fault always ends the training, such as a hang. 2 or 3 if
        `rankscope train` ended with this status. 1 if the training failed in another way."""
        if self.truth_ends_training or not self.train_status:
            return 0
        return self.train_status if self.train_status in (2, 3) else 1

    @property
    def truth_ends_training(self) -> bool:
        """Whether the injected fault always ends the training."""
        return self.truth.get("kind") in ("hang", "die", "skip", "shape")


def output_folder(named: Path | None, run_id: str) -> Path:
    """Create the folder for store, rank files and logs of a run. ``named``: the folder that the user chose, or None.

    Raises:
        UnsafeFolderError: another user owns the folder, or can write into it.
        OSError: the folder cannot be created.
    """
    usual = DEFAULT_OUT / run_id
    return make_out(usual if named is None else named, usual=usual)


@contextmanager
def serving(out: Path) -> Iterator[CollectorClient]:
    """A collector with its dashboard on loopback and its store under ``out``. It ends with the ``with`` block.

    Raises:
        UnreachableError: the collector did not start, or ended too early. Its log has the reason.
        OSError: the log cannot be opened, or is a link.
    """
    log_path = out / LOG
    command = [*RANKSCOPE, "collect", "--store", f"embedded:{out / 'store'}", "--port"]
    with (
        claimed_port(DEFAULT_PORT, out) as port,
        open_output(log_path) as sink,
        child([*command, str(port)], sink) as process,
    ):
        client = CollectorClient(f"http://127.0.0.1:{port}")
        _wait_ready(client, process, log_path)
        try:
            yield client
        except UnreachableError as error:
            if process.poll() is None:
                raise
            raise UnreachableError(
                f"the collector ended with status {process.returncode}",
                hint=f"see its log {log_path}. The records of the ranks are not lost: "
                f"send them with `rankscope agent --spool {out / 'spool'}`",
            ) from error


def train_and_diagnose(demonstration: Demonstration, collector: CollectorClient) -> Outcome:
    """Train with the fault, wait until all spans are stored, and run all detectors."""
    status, ended_by_demo = _train(demonstration, collector)
    run_id, attempt = newest_attempt(collector, demonstration.run_id)
    samples = collector.read(Samples(run_id=run_id, attempt=attempt, metrics=("loss",)))
    return Outcome(
        report=diagnose_run(collector, run_id, attempt),
        truth=_truth(demonstration.out / "truth.json"),
        losses=[float(value) for value in samples["value"].to_pylist()],
        train_status=status,
        ended_by_demo=ended_by_demo,
    )


def _train(demonstration: Demonstration, collector: CollectorClient) -> tuple[int, bool]:
    command = [
        *(*RANKSCOPE, "train", "--recipe", demonstration.recipe, "--run", demonstration.run_id),
        *("--steps", str(demonstration.num_steps), "--fault", demonstration.fault),
        *("--collector", collector.url, "--out", str(demonstration.out)),
    ]
    if demonstration.num_microbatches is not None:
        command += ["--microbatches", str(demonstration.num_microbatches)]
    with child(command, None) as process:
        return _wait_while_stepping(process, demonstration.run_id, collector)


def _wait_while_stepping(process: subprocess.Popen[bytes], run_id: str, collector: CollectorClient) -> tuple[int, bool]:
    """Wait for the end of the training. End it if a rank is found to be behind in a stall, or if a time limit is
    reached.

    Returns the exit status of the training, and whether this function ended it.
    """
    last_step, progress_s = -1, time.monotonic()
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=2.0), False
        step = _newest_step(collector, run_id)
        if step > last_step:
            last_step, progress_s = step, time.monotonic()
            continue  # a training that makes progress does not stall
        if headline := _stall_headline(collector, run_id):
            log(f"{headline}: ending the training")
            return _end(process), True
        if too_long := _too_long(last_step, time.monotonic() - progress_s):
            log(f"{too_long}: ending the training")
            return _end(process), True


def _too_long(last_step: int, waited_s: float) -> str | None:
    """Why the training is ended ``waited_s`` after ``last_step``, which is -1 before the first step. None if it is not
    ended yet."""
    if last_step < 0:
        return f"no step was completed within {FIRST_STEP_S:.0f} s" if waited_s > FIRST_STEP_S else None
    return f"no step was completed for {STALL_S:.0f} s after step {last_step}" if waited_s > STALL_S else None


def _newest_step(collector: CollectorClient, run_id: str) -> int:
    with suppress(RankscopeError):
        steps = collector.read(Steps(run_id=run_id, attempt=newest_attempt(collector, run_id)[1]))
        return int(steps["step"][-1].as_py()) if steps.num_rows else -1
    return -1


def _stall_headline(collector: CollectorClient, run_id: str) -> str | None:
    """The headline of the verdict for a stall. None while no rank is found to be behind."""
    with suppress(RankscopeError):
        verdict = stored_verdict(collector, *newest_attempt(collector, run_id))
        return verdict.headline if verdict is not None and verdict.initiating else None
    return None


def _truth(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"kind": "none"}
    truth: dict[str, Any] = json.loads(path.read_text())
    return truth


def _wait_ready(client: CollectorClient, process: subprocess.Popen[bytes], log_path: Path) -> None:
    """Wait until the log of our collector shows that it uses the port: another server may answer there."""
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        if f"collector on {client.url}" in log_path.read_text() and client.healthy():
            return
        time.sleep(0.1)
    late = "" if process.poll() is not None else f"it did not answer within {START_S:g} s"
    reason = reason_in(log_path.read_text(errors="replace")) or late
    raise UnreachableError(
        f"the collector did not start{f': {reason}' if reason else ''}", hint=f"see its log: {log_path}"
    )


@contextmanager
def child(command: list[str], sink: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A child process in its own session. It ends with the ``with`` block, and with this process."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sink or sys.stderr,
        stderr=sink,
        env=child_environment(),
        start_new_session=True,
    )
    _running.append(process)
    try:
        yield process
    except (KeyboardInterrupt, SystemExit):  # a signal ends the demo: its processes end at the same time
        for started in _running:
            started.send_signal(signal.SIGHUP)
        raise
    finally:
        if process.poll() is None:
            _end(process)
        _running.remove(process)


def _end(process: subprocess.Popen[bytes]) -> int:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        return process.wait(timeout=STOP_S)
    os.killpg(process.pid, signal.SIGKILL)
    return process.wait()
