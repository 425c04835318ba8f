"""Jobs on undeclared meshes: whether the mesh is learned, and the slow or stopped rank is named.

python -m tests.scenarios.mesh_trials [--mesh NAME ...] [--seed 0] [--only N ...] [--out DIR] [--json] [--write]

For each mesh each of the eight ranks is slowed once and stopped once, and two trainings are healthy. Ranks, agent,
collector and store are real (``mesh_job.py``). A trial is right if

    the store has the mesh of the job, and every operation with its stage and axes,
    `rankscope diagnose` names exactly the slowed rank as compute-straggler and reports nothing else above info, and
    `rankscope diagnose hang` names exactly the stopped rank.

``--write`` puts the table into docs/accuracy.md. Exit status 1 if a trial was not right.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import median

from diagnose.findings import Finding, Kind, Severity
from diagnose.hang.stored import stored_verdict
from diagnose.pipeline import diagnose_run
from telemetry.agent.settings import follow
from telemetry.group_names import GROUP_BASE
from telemetry.records import topology_of
from telemetry.stages import STAGE_BY_CODE
from telemetry.stores.interface import Reader
from telemetry.stores.queries import Ranks, Spans
from telemetry.topology import Topology
from telemetry.wire.client import CollectorClient
from tests.benchmarks.pages import as_table, write_section
from tests.deadline import until
from tests.forkserver import FORKED
from tests.scenarios.hang_job import AGENT_OPTIONS, LOOK_S, NO_VERDICT, accused_now, collecting
from tests.scenarios.mesh_job import HEALTHY, LOOPING, MESHES, NUM_RANKS, SLOW, STOPPED, Trial, in_own_session, launch

TITLE = "Learned meshes"
COMMAND = "python -m tests.scenarios.mesh_trials"
NUM_STEPS = 36
MANY_STEPS = 2_000
"""More than a job with a stopped rank reaches."""
FACTORS = (1.5, 2.0)
NUM_HEALTHY = 2
KINDS = (SLOW, STOPPED, LOOPING, HEALTHY)
START_S, VERDICT_S, END_S = 90.0, 60.0, 120.0
TENSOR = {("tp-all-gather", "tp"), ("tp-reduce-scatter", "tp")}
PIPELINE = {(f"{direction}-{side}", "pp") for direction in ("forward", "backward") for side in ("send", "recv")}
CONTEXT = {(f"cp-{kind}", "cp") for kind in ("all-gather", "all-to-all", "send-recv")}


def _sharded(axes: str) -> set[tuple[str, str]]:
    return {("params-all-gather", axes), ("grads-reduce-scatter", axes)}


EXPECTED: dict[str, tuple[str, set[tuple[str, str]]]] = {
    "torchtitan": ("pp=2,dp_shard=2,tp=2", TENSOR | PIPELINE | _sharded("dp_shard")),
    "megatron": ("pp=2,dp=2,tp=2", TENSOR | PIPELINE | _sharded("dp")),
    "context": ("dp=2,cp=2,tp=2", TENSOR | CONTEXT | _sharded("dp cp") | {("ep-all-to-all", "dp cp")}),
    "experts": ("dp=2,ep=4", _sharded("dp ep") | {("ep-all-to-all", "ep"), ("grads-all-reduce", "dp ep")}),
}
"""The mesh that is to be learned; stage and axes of every operation. Axes of degree 1 have no groups to learn from. The
sum of the losses is over all ranks: among experts it lies along the axes of data parallelism."""
HEADINGS = (
    *("mesh", "trial", "trials", "mesh, stages and axes right", "exact", "other warnings and critical findings"),
    "seconds from the fault to the verdict, median (worst)",
)
NOTE = """\
- Eight gloo ranks run on the two cores of one machine. `rankscope.start()` does not get the mesh. Each rank learns it
  from its process groups.
- A slowed rank computes 1.5 to 2 times as long in each forward, from step 8 of {num_steps} steps. *Exact* means that
  `rankscope diagnose` reports this rank, and no other, as compute-straggler.
- A stopped rank stops in a forward of step 8. *Exact* means that `rankscope diagnose hang` names this rank and no
  other. The seconds to this verdict include the stall threshold of 3 s.

| mesh | group names of | parallelism |
| --- | --- | --- |
| torchtitan | torchtitan's DeviceMesh | pipelining, FSDP2, tensor |
| megatron | Megatron's group descriptions | pipelining, FSDP2, tensor |
| context | DeviceMesh | context, FSDP2, tensor |
| experts | Megatron's group descriptions | FSDP2, experts that exchange tokens among four ranks |
"""


@dataclass(slots=True, kw_only=True)
class Found:
    """The result of a trial."""

    trial: Trial
    learned: bool = False
    """Whether the store has the mesh, and every operation with its stage and axes."""
    exact: bool = False
    """Whether only the rank at fault is named; in a healthy training, no rank."""
    others: list[str]
    """Other findings above info, and wrong earlier verdicts."""
    seconds: float | None = None
    """From the fault to the verdict of a stall."""
    words: str = ""

    @property
    def holds(self) -> bool:
        return self.learned and self.exact and not self.others

    @property
    def line(self) -> str:
        """The trial and its result, in a line."""
        trial = self.trial
        which = trial.kind if trial.kind == HEALTHY else f"rank {trial.rank} {trial.kind}"
        how = f" by {trial.factor:g}" if trial.kind == SLOW else ""
        right = "right" if self.holds else f"not right (learned {self.learned}, exact {self.exact}, {self.others})"
        return f"{trial.mesh}, {which}{how}: {right}: {self.words[:300]}"


def plan(mesh: str, seed: int, folder: Path) -> list[Trial]:
    """Eighteen trials. Odd or even ranks, by the seed, are stopped by a signal; the others loop."""
    rng = random.Random(f"{mesh} {seed}")
    trials = []
    for rank in range(NUM_RANKS):
        stopped = STOPPED if (rank + seed) % 2 else LOOPING
        trials += [(SLOW, rank, round(rng.uniform(*FACTORS), 2), NUM_STEPS), (stopped, rank, 1.0, MANY_STEPS)]
    trials += [(HEALTHY, -1, 1.0, NUM_STEPS)] * NUM_HEALTHY
    return [
        Trial(
            mesh=mesh, kind=kind, rank=rank, factor=factor, num_steps=num_steps, out=folder / f"{mesh}-{seed}-{number}"
        )
        for number, (kind, rank, factor, num_steps) in enumerate(trials)
    ]


def run_trial(trial: Trial, collector: CollectorClient) -> Found:
    """Train, and read the findings from the store."""
    found = Found(trial=trial, others=[])
    with _running(trial, collector.url) as (job, agent):
        if trial.kind in (STOPPED, LOOPING):
            until(trial.fired_at_s, seconds=START_S, what=f"the fault of {trial.run_id}")
            _await_verdict(found, collector)
        else:
            job.join(END_S)
            assert job.exitcode == 0, (trial.out / "job.log").read_text()[-3000:]
            agent.join(END_S)
            assert agent.exitcode == 0, (trial.out / "agent.log").read_text()[-3000:]
            judge_steps(found, collector)
    found.learned = is_learned(trial, collector)
    return found


@contextmanager
def _running(trial: Trial, url: str) -> Iterator[tuple[BaseProcess, BaseProcess]]:
    """The job and its agent. Both are killed on exit."""
    trial.out.mkdir(parents=True)
    options = ("--spool", str(trial.spool), "--collector", url, "--run", trial.run_id, "--interval", "0.2")
    job = FORKED.Process(target=in_own_session, args=(trial.out / "job.log", launch, trial))
    follows = (trial.out / "agent.log", follow, "agent", (*options, *AGENT_OPTIONS))
    agent = FORKED.Process(target=in_own_session, args=follows)
    try:
        job.start()
        agent.start()
        yield job, agent
    finally:
        for process in (job, agent):
            if process.pid is not None and process.is_alive():
                os.killpg(process.pid, signal.SIGKILL)
                process.join()


def _await_verdict(found: Found, collector: CollectorClient) -> None:
    trial = found.trial
    deadline = trial.fired_at_s() + VERDICT_S

    def is_decided() -> bool:
        ranks = accused_now(collector, trial.run_id)
        if ranks and ranks != trial.guilty:
            found.others.append(f"rank {ranks} on the way")
        return ranks == trial.guilty or time.time() > deadline

    until(is_decided, seconds=VERDICT_S + START_S, every=LOOK_S, what="verdict or deadline")
    found.seconds = time.time() - trial.fired_at_s()
    verdict = stored_verdict(collector, trial.run_id, 0)
    if verdict is not None and verdict.kind not in NO_VERDICT:
        found.exact = verdict.initiating == trial.guilty
        found.words = f"{verdict.kind} {verdict.initiating}"


def judge_steps(found: Found, reader: Reader) -> None:
    """Record the findings of `rankscope diagnose` about a training that did not stop."""
    findings = diagnose_run(reader, found.trial.run_id, 0).findings
    right = [one for one in findings if _is_right(one, found.trial)]
    found.exact = bool(right) or found.trial.kind == HEALTHY
    found.others = [
        f"{one.kind} {list(one.ranks)}: {one.summary}"
        for one in findings
        if one not in right and (one.severity is not Severity.INFO or one.ranks)
    ]
    found.words = "; ".join(f"{one.severity} {one.summary}" for one in findings)


def _is_right(finding: Finding, trial: Trial) -> bool:
    return finding.kind == Kind.COMPUTE_STRAGGLER and tuple(finding.ranks) == trial.guilty


def is_learned(trial: Trial, reader: Reader) -> bool:
    """Whether a store or spool has the mesh, and every operation with its stage and axes."""
    mesh, operations = EXPECTED[trial.mesh]
    ranks = reader.read(Ranks(run_id=trial.run_id, attempt=0))
    topology = topology_of(ranks)
    spans = reader.read(Spans(run_id=trial.run_id, attempt=0, first_step=0, last_step=MANY_STEPS))
    columns = (spans[name].to_pylist() for name in ("rank", "stage", "peer", "op_seq"))
    seen = {
        (STAGE_BY_CODE[stage].label, _axes(rank, peer, topology))
        for rank, stage, peer, op_seq in zip(*columns, strict=True)
        if op_seq
    }
    is_right = str(topology) == str(Topology.parse(mesh)) and seen == operations
    if not is_right:
        print(f"{trial.run_id}: {topology}, {sorted(seen ^ operations)}", file=sys.stderr)
    return is_right


def _axes(rank: int, peer: int, topology: Topology) -> str:
    """Axes of the group of a collective, or axes along which the two ranks of a transfer differ."""
    if peer <= GROUP_BASE:
        return " ".join(topology.axes_of(GROUP_BASE - peer))
    here, there = topology.coordinates(rank), topology.coordinates(peer) if peer >= 0 else {}
    return " ".join(name for name in here if there and here[name] != there[name])


def run_mesh(mesh: str, seed: int, folder: Path, only: Sequence[int]) -> list[Found]:
    """All trials of a mesh, one after another."""
    found = []
    folder = folder / mesh
    folder.mkdir(parents=True)
    with collecting(folder) as collector:
        for number, trial in enumerate(plan(mesh, seed, folder)):
            if not only or number in only:
                began = time.monotonic()
                found.append(one := run_trial(trial, collector))
                print(f"#{number} in {time.monotonic() - began:.1f} s: {one.line}", file=sys.stderr, flush=True)
    return found


def as_section(found: Sequence[Found]) -> str:
    """The section of docs/accuracy.md."""
    cases = dict.fromkeys((one.trial.mesh, kind) for one in found for kind in KINDS)
    rows = [
        _row(mesh, kind, chosen)
        for mesh, kind in cases
        if (chosen := [one for one in found if (one.trial.mesh, one.trial.kind) == (mesh, kind)])
    ]
    parts = [as_table(HEADINGS, rows), NOTE.format(num_steps=NUM_STEPS).strip()]
    if wrong := [f"- {one.trial.run_id}: {one.line}" for one in found if not one.holds]:
        parts += ["All misses:", "\n".join(wrong)]
    return "\n\n".join(parts)


def _row(mesh: str, kind: str, found: Sequence[Found]) -> tuple[str, ...]:
    seconds = [one.seconds for one in found if one.seconds is not None]
    return (
        f"{mesh}: {EXPECTED[mesh][0]}",
        kind,
        str(len(found)),
        str(sum(one.learned for one in found)),
        str(sum(one.exact for one in found)),
        str(sum(len(one.others) for one in found)),
        f"{median(seconds):.1f} ({max(seconds):.1f})" if seconds else "",
    )


def main() -> int:
    given = _arguments()
    FORKED.set_forkserver_preload(["tests.scenarios.mesh_job", "telemetry.agent.settings"])
    with tempfile.TemporaryDirectory(prefix="rankscope-meshes-") as temporary:
        folder = given.out or Path(temporary)
        found = [one for mesh in given.mesh for one in run_mesh(mesh, given.seed, folder, given.only)]
    section = as_section(found)
    print(json.dumps([asdict(one) for one in found], default=str, indent=2) if given.json else section)
    if given.write and not given.only:
        write_section(TITLE, f"{COMMAND} --mesh {' '.join(given.mesh)} --seed {given.seed}", section)
    return int(not all(one.holds for one in found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mesh", nargs="+", choices=MESHES, default=list(MESHES), help="these meshes alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", type=int, nargs="+", default=[], help="of each mesh these trials alone; nothing is written"
    )
    parser.add_argument("--out", type=Path, help="keep everything here")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.add_argument("--write", action="store_true", help="write docs/accuracy.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
