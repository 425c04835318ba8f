"""Cost of attaching: a DDP loop with and without it, and ``import torch`` without the variable.

plain job       2 ranks    block      block      ...      both jobs run all the time; one of them trains
attached job    2 ranks         block      block ...      the first job alternates

The import: the entry point is loaded and called in fresh interpreters, as ``import torch`` does it.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.benchmarks import attach_job
from tests.benchmarks.figures import Figure, report
from tests.telemetry.attach.entry_points import installed

BOUND = 1.01
IMPORT_BOUND_MS = 1.0
NUM_PAIRS, NUM_WARMUP, STEPS_PER_BLOCK = 60, 6, 20
NUM_IMPORTS = 15
NUM_RESAMPLES = 2_000
IMPORT = """
import importlib, importlib.metadata, os, sys, time
began = time.perf_counter()
importlib.metadata.EntryPoint("rankscope", "rankscope_attach:attach", "torch.backends").load()()
print(1e3 * (time.perf_counter() - began))
"""
Columns = npt.NDArray[np.float64]
Job = list["subprocess.Popen[str]"]
Spent = tuple[float, float]


class AttachBenchmark:
    """The cost of attaching."""

    title = "Attach without code changes"
    command = "python -m tests.benchmarks.attach"

    def run(self) -> list[Figure]:
        spent = _paired_steps()
        wall, processor = spent[:, :, 0], spent[:, :, 1]
        return [
            _seconds("step, DDP on two ranks, attached", wall),
            _ratio("attached / not attached, wall", wall),
            _seconds("processor time of both ranks in a step, attached", processor),
            _ratio("attached / not attached, processor time", processor),
            _import_cost(),
        ]


def _paired_steps() -> Columns:
    """Axes: pair; plain or attached; wall or processor seconds of a step."""
    with tempfile.TemporaryDirectory(prefix="rankscope-attach-") as name, ExitStack() as jobs:
        folder = Path(name)
        plain = jobs.enter_context(_job(folder / "plain"))
        attached = jobs.enter_context(_job(folder / "attached", RANKSCOPE="1", RANKSCOPE_SPOOL=str(folder / "spool")))
        pairs = [_pair(plain, attached, plain_first=number % 2 == 0) for number in range(NUM_WARMUP + NUM_PAIRS)]
        assert any((folder / "spool").iterdir()), "nothing was recorded"
        return np.array(pairs[NUM_WARMUP:])


def _pair(plain: Job, attached: Job, *, plain_first: bool) -> tuple[Spent, Spent]:
    if plain_first:
        return _block(plain), _block(attached)
    seconds = _block(attached)
    return _block(plain), seconds


def _block(job: Job) -> Spent:
    """Wall seconds of the slower rank, and processor seconds of both."""
    for rank in job:
        assert rank.stdin
        print(STEPS_PER_BLOCK, file=rank.stdin, flush=True)
    walls, processors = zip(*(map(float, rank.stdout.readline().split()) for rank in job if rank.stdout), strict=True)
    return max(walls), sum(processors)


@contextmanager
def _job(folder: Path, **variables: str) -> Iterator[Job]:
    folder.mkdir()
    environment = installed(folder, WORLD_SIZE="2", MEET=f"file://{folder}/meet", **variables)
    command = [sys.executable, attach_job.__file__]
    ranks = [
        subprocess.Popen(
            command,
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def _import_cost() -> Figure:
    with tempfile.TemporaryDirectory(prefix="rankscope-attach-") as name:
        environment = installed(Path(name))
        command = [sys.executable, "-c", IMPORT]
        answers = [
            subprocess.run(command, env=environment, capture_output=True, check=True) for _ in range(NUM_IMPORTS)
        ]
    costs_ms = [float(answer.stdout) for answer in answers]
    low, high = np.percentile(costs_ms, (10, 90))
    return Figure(
        name="added to import torch, variable not set",
        value=float(np.median(costs_ms)),
        unit="ms",
        low=float(low),
        high=float(high),
        bound=IMPORT_BOUND_MS,
    )


def _seconds(name: str, pairs: Columns) -> Figure:
    low, high = np.percentile(pairs[:, 1], (10, 90))
    return Figure(
        name=name,
        value=float(np.median(pairs[:, 1])),
        unit="s",
        rival="not attached",
        rival_value=float(np.median(pairs[:, 0])),
        low=float(low),
        high=float(high),
    )


def _ratio(name: str, pairs: Columns) -> Figure:
    """Median over neighbouring blocks, so that drift of the machine cancels."""
    ratios = pairs[:, 1] / pairs[:, 0]
    picks = np.random.default_rng(0).integers(len(ratios), size=(NUM_RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(ratios[picks], axis=1), (10, 90))
    return Figure(
        name=name,
        value=float(np.median(ratios)),
        unit="",
        low=float(low),
        high=float(high),
        bound=BOUND,
        note="spread of the median, bootstrapped over neighbouring pairs",
    )


BENCHMARK = AttachBenchmark()


def main() -> int:
    """Print the figures. The exit status is 1 if a bound is broken."""
    return report(BENCHMARK.title, BENCHMARK.run(), as_json="--json" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
