"""Driven jobs and faults from outside: whether each job continues, how soon, and which nodes are blocked.

python -m tests.scenarios.drive_trials [--count 100] [--seed 0] [--only KIND ...] [--out DIR] [--json] [--write]

Each trial is a real job of two nodes and two spares, with a collector, a watcher and a dashboard. After a random number
of steps the fault happens. A trial is right if the job ends with status 0, has the losses of an undisturbed training
bit by bit, blocks no healthy node, and leaves no process. Seconds are measured by the clock of the trial, from the
fault to the first step that was never done before. Exit status 1 if a trial was not right. Nodes of trials with links
are network namespaces, without a collector (``link_trials.py``). 100 trials take about two hours on two cores. With
``--out``, an interrupted call continues after its last trial.
"""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from tests.benchmarks.pages import as_table, write_section
from tests.deadline import until
from tests.scenarios import link_trials
from tests.scenarios.step_clock import StepClock
from tests.trainer.drive import driven
from tests.trainer.drive.driven import COMMAND, TINY, DrivenJob, decisions_of, driven_job, slowed
from trainer.drive.job import NodeState, Phase

TITLE = "Driven jobs"
LONGEST_S = driven.PATIENCE_S = 600.0
NUM_STEPS = 40
FULL_S, SLOW_S = 4.0, 15.0
DISK_BYTES = 64 * 2**20
MAX_REST, MAX_DIFFERENCE = 0.005, 0.05
"""Limits for goodput: classes against wall time, and cost of faults against the clock of the trial."""
NO_ROOM = "no room for checkpoints"
NAN, NAN_STEP = "NaN", 20
HANG, HANG_STEP = "hang", 20
NODES = ("--nodes", "2", "--spares", "2")
HEADINGS = (
    "fault",
    "trials",
    "right",
    "seconds to a new step, median (worst)",
    "goodput beside the trial's clock, worst",
)
NOTES = """\
A job has two nodes of one rank each, two spares, a collector and a watcher. It writes a checkpoint in every step.

- *Right*: all of this is true. The command ends with status 0. The losses of all steps are bit-identical to those of a
  training without a fault. No healthy node is blocked. No process is left.
- *Seconds to a new step*: from the fault to the end of the first step that the job had not reached before. They include
  the check of the suspected node.
- *Goodput beside the trial's clock*: the trial itself measures how much longer than usual the job was between two steps
  because of the fault. The column has the difference between this time and the cost of the incidents in
  `rankscope goodput`. A trial with more than 5% difference is not right.
- In the trials of a link, the nodes are network namespaces and there is no collector. After *data link down* (only the
  network between the ranks fails), the node with the fault must be blocked.
"""
Fault = Callable[[DrivenJob, random.Random], None]


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The result of a trial."""

    number: int
    kind: str
    seconds: float | None = None
    """To the first new step; None: there was none."""
    cost_s: float | None = None
    """Cost of the faults by the clock of the trial; None: no fault ended an attempt."""
    ledger_s: float | None = None
    """The same by ``rankscope goodput``."""
    problems: list[str] = field(default_factory=list)


def kill_rank(job: DrivenJob, chance: random.Random) -> None:
    job.kill(chance.choice(list(job.ranks().values())))


def stop_rank(job: DrivenJob, chance: random.Random) -> None:
    job.kill(chance.choice(list(job.ranks().values())), signal.SIGSTOP)


def kill_executor(job: DrivenJob, chance: random.Random) -> None:
    job.kill(job.executor(chance.choice(job.state.members)))


def kill_driver(job: DrivenJob, _: random.Random) -> None:
    job.kill(job.driver())


def kill_agent(job: DrivenJob, chance: random.Random) -> None:
    job.kill(chance.choice(job.processes("telemetry.agent")))


def kill_collector(job: DrivenJob, _: random.Random) -> None:
    for pid in job.processes("collect"):
        job.kill(pid)


def kill_command(job: DrivenJob, _: random.Random) -> None:
    assert job.process is not None
    job.kill(job.process.pid)
    job.process.wait()
    job.start()


def fill_disk(job: DrivenJob, _: random.Random) -> None:
    """Fill the disk, so that no checkpoint can be written for a while."""
    filler = job.out / "checkpoints" / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(2**20))
    time.sleep(FULL_S)
    filler.unlink()


@contextmanager
def small_disk(path: Path) -> Iterator[None]:
    """Mount a small file system at ``path`` for the block."""
    path.mkdir(parents=True)
    path.chmod(0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=700", "tmpfs", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


def slow_node(job: DrivenJob, chance: random.Random) -> None:
    with slowed(job.executor(chance.choice(job.state.members))):
        time.sleep(SLOW_S)


def two_at_once(job: DrivenJob, chance: random.Random) -> None:
    for fault in chance.sample([kill_rank, stop_rank, kill_executor, kill_driver, kill_agent, kill_collector], 2):
        fault(job, chance)


def wait_for_nan(job: DrivenJob) -> None:
    """Wait until the gradients of a rank are NaN, by ``--fault``."""
    until(lambda: max(job.losses()) >= NAN_STEP, seconds=LONGEST_S, what="the step with NaN")


def check_not_finite(job: DrivenJob) -> None:
    """Check that the ranks ended because of NaN."""
    assert "not-finite" in decisions_of(job.out), decisions_of(job.out)


def wait_for_hang(job: DrivenJob) -> None:
    """Wait until a rank stops forever inside a step, by ``--fault``."""
    until(lambda: max(job.losses()) >= HANG_STEP - 1, seconds=LONGEST_S, what="the step before the hang")


def check_verdict(job: DrivenJob) -> None:
    """Check that the watcher has found the hang, so it was no stall without a finding."""
    decisions = decisions_of(job.out)
    assert "hung-collective" in decisions, f"no verdict: {decisions}"


FAULTS: dict[str, Fault] = {
    "rank killed": kill_rank,
    "rank stopped": stop_rank,
    "executor killed": kill_executor,
    "driver killed": kill_driver,
    "agent killed": kill_agent,
    "collector killed": kill_collector,
    "command killed": kill_command,
    NO_ROOM: fill_disk,
    "node slowed": slow_node,
    "two at once": two_at_once,
    NAN: lambda job, chance: None,
    HANG: lambda job, chance: None,
    **link_trials.FAULTS,
}
INJECTED = {
    NAN: ("--fault", f"nan:rank=1,step={NAN_STEP}"),
    HANG: ("--fault", f"hang:rank=1,step={HANG_STEP}"),
}
"""Options of the command."""
BEFORE: dict[str, Callable[[DrivenJob], None]] = {NAN: wait_for_nan, HANG: wait_for_hang}
AFTERWARDS: dict[str, Callable[[DrivenJob], None]] = {
    NAN: check_not_finite,
    HANG: check_verdict,
    **link_trials.AFTERWARDS,
}


def steps_of(kind: str) -> int:
    """Steps of the job of a trial."""
    return link_trials.NUM_STEPS if kind in link_trials.FAULTS else NUM_STEPS


def job_of(kind: str, out: Path) -> AbstractContextManager[DrivenJob]:
    """The job of a trial, started."""
    if kind in link_trials.FAULTS:
        return link_trials.hosted_job(out)
    return driven_job(out, *NODES, "--steps", str(NUM_STEPS), *INJECTED.get(kind, ()))


def outcome_of(number: int, kind: str, seed: int, folder: Path, undisturbed: dict[int, set[float]]) -> Outcome:
    """The outcome of a trial, which ran now or in an earlier call with the same folder."""
    kept = folder / f"trial-{number}-seed-{seed}.json"
    if kept.exists():
        outcome = Outcome(**json.loads(kept.read_text()))
        if outcome.kind == kind:
            return outcome
    outcome = run_trial(number, kind, seed, folder, undisturbed)
    kept.write_text(json.dumps(asdict(outcome)))
    return outcome


def run_trial(number: int, kind: str, seed: int, folder: Path, undisturbed: dict[int, set[float]]) -> Outcome:
    """One trial."""
    chance = random.Random(f"{seed} {number}")
    outcome = Outcome(number=number, kind=kind)
    out = folder / f"trial-{number}"
    shutil.rmtree(out, ignore_errors=True)  # an interrupted trial
    disk = small_disk(out / "checkpoints") if kind == NO_ROOM else nullcontext()
    with disk, job_of(kind, out) as job, StepClock(out) as clock:
        try:
            job.wait_for_attempt(0)
            job.wait_for_steps(chance.randrange(1, 12))
            BEFORE.get(kind, nothing)(job)
            newest = max(job.losses())
            began = time.monotonic()
            FAULTS[kind](job, chance)
            until(lambda: max(job.losses()) > newest or job.has_ended, seconds=LONGEST_S, what="a new step")
            outcome.seconds = time.monotonic() - began
            AFTERWARDS.get(kind, nothing)(job)
            status = job.finish()
            outcome.problems += [f"status {status}"] if status else []
            until(lambda: not job.left(), seconds=30.0, what="the end of every process")
            _compare_costs(outcome, out, clock)
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            outcome.problems.append(str(error)[:500])
        outcome.problems += _wrong_end(job, undisturbed)
    return outcome


def _compare_costs(outcome: Outcome, out: Path, clock: StepClock) -> None:
    """Compare the cost of the faults in the goodput ledger with the clock of the trial."""
    command = [*COMMAND[:-1], "goodput", "--store", f"embedded:{out / 'store'}", "--json"]
    if not (out / "store").exists():
        return
    ledger = json.loads(subprocess.run(command, check=True, timeout=LONGEST_S, capture_output=True).stdout)
    if abs(sum(ledger["classes"].values()) - ledger["wall_s"]) > MAX_REST * ledger["wall_s"]:
        outcome.problems.append(f"the classes of goodput do not add up to the wall time: {ledger['classes']}")
    if incidents := ledger["incidents"]:
        outcome.ledger_s = sum(incident["cost_s"] for incident in incidents)
        outcome.cost_s = clock.cost_s(steps_per_fault=len(incidents))
        if abs(outcome.ledger_s - outcome.cost_s) > MAX_DIFFERENCE * outcome.cost_s:
            outcome.problems.append(f"goodput says {outcome.ledger_s:.1f} s, the trial's clock {outcome.cost_s:.1f} s")


def _wrong_end(job: DrivenJob, undisturbed: dict[int, set[float]]) -> list[str]:
    problems = []
    blocked = [node for node in job.state.nodes.values() if node.state is NodeState.BLOCKED]
    problems += [f"{node.name} is blocked: {node.reason}" for node in blocked]
    if job.state.phase is not Phase.DONE:
        problems.append(f"the job is {job.state.phase}: {job.state.reason}")
    if job.losses() != undisturbed:
        different = [step for step in undisturbed if job.losses().get(step) != undisturbed[step]]
        problems.append(f"other losses in steps {different}")
    return problems


def nothing(_: DrivenJob) -> None:
    """Most trials need only the fault."""


def undisturbed_losses(out: Path, num_steps: int) -> dict[int, set[float]]:
    """Losses of the same training without a fault. They do not depend on the number of steps."""
    if out.exists():  # an earlier call with the same --out
        return DrivenJob(out, ()).losses()
    unfinished = out.with_name(f"{out.name}-unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [*COMMAND[:-1], "train", *TINY[:-2], "--steps", str(num_steps), "--out", str(unfinished)]
    subprocess.run([*command, "--no-telemetry"], check=True, timeout=LONGEST_S, capture_output=True)
    unfinished.rename(out)
    return DrivenJob(out, ()).losses()


def rows_of(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, ...]]:
    """A row for each kind, and one for all."""
    for kind in [*dict.fromkeys(outcome.kind for outcome in outcomes), "all"]:
        these = [outcome for outcome in outcomes if kind in ("all", outcome.kind)]
        times = [outcome.seconds for outcome in these if outcome.seconds is not None]
        right = sum(not outcome.problems for outcome in these)
        off = [abs(each.ledger_s / each.cost_s - 1) for each in these if each.cost_s and each.ledger_s is not None]
        yield (
            kind,
            str(len(these)),
            str(right),
            f"{median(times):.1f} ({max(times):.1f})" if times else "-",
            f"{max(off):.1%}" if off else "-",
        )


@contextmanager
def _folder(given: Path | None) -> Iterator[Path]:
    with ExitStack() as opened:
        yield given or Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="rankscope-drive-")))


def main() -> int:
    """Run the trials and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", choices=FAULTS)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="put the table into docs/accuracy.md")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the job of the trial ends too
    kinds = given.only or list(FAULTS)
    outcomes = []
    with _folder(given.out) as folder:
        undisturbed = undisturbed_losses(folder / "undisturbed", max(map(steps_of, kinds)))
        for number in range(given.count):
            kind = kinds[number % len(kinds)]
            losses = {step: undisturbed[step] for step in range(steps_of(kind))}
            outcome = outcome_of(number, kind, given.seed, folder, losses)
            outcomes.append(outcome)
            seconds = "no new step" if outcome.seconds is None else f"{outcome.seconds:.1f} s"
            words = f"{number} {outcome.kind}: {seconds}: {'; '.join(outcome.problems) or 'right'}"
            print(words, file=sys.stderr, flush=True)
    if given.json:
        print(json.dumps({"seed": given.seed, "trials": [asdict(outcome) for outcome in outcomes]}, indent=1))
    table = as_table(HEADINGS, list(rows_of(outcomes)))
    print(table, file=sys.stderr)
    if given.write:
        command = f"python -m tests.scenarios.drive_trials --count {given.count} --seed {given.seed}"
        write_section(TITLE, command, f"{table}\n\n{NOTES}")
    return int(any(outcome.problems for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
