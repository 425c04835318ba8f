"""Cost of telemetry for a training step: real ranks, each with the same model twice. The two models step in turn.

There are two grids. Two tensor-parallel ranks have one core each, so the wall time of a step is meaningful, and they
issue the most collectives for their compute. Eight ranks (2x2x2) on two cores are the demo. There the processor time
counts, and the wall time is shown only for information.
"""

import json
import subprocess
import sys

import numpy as np
import numpy.typing as npt

from tests.benchmarks.figures import Figure, report

BOUND = 1.01
NUM_PAIRS = {(1, 1, 2): 80, (2, 2, 2): 40}
NUM_RESAMPLES = 2_000
LIMIT_S = 900
SPREAD = "spread of the median, bootstrapped over neighbouring pairs"
Columns = npt.NDArray[np.float64]


class OverheadBenchmark:
    """Step time with and without telemetry."""

    title = "Step time with and without telemetry"
    command = "python -m tests.benchmarks.overhead"

    def run(self) -> list[Figure]:
        return [*_tensor_parallel(), *_whole_grid()]


def _tensor_parallel() -> list[Figure]:
    wall = _measured((1, 1, 2))[0, :, :, 0]
    return [_seconds("step, tp 2, traced", wall), _ratio("traced / untraced, tp 2, wall", wall, bound=BOUND)]


def _whole_grid() -> list[Figure]:
    spent = _measured((2, 2, 2))
    wall, processor = spent[0, :, :, 0], spent[:, :, :, 1].sum(axis=0)
    return [
        _seconds("step, 2x2x2 on two cores, traced", wall),
        _ratio("traced / untraced, 2x2x2, wall", wall, bound=None),
        _seconds("processor time of all ranks, traced", processor),
        _ratio("traced / untraced, 2x2x2, processor time", processor, bound=BOUND),
    ]


def _measured(grid: tuple[int, int, int]) -> Columns:
    """Axes: rank, pair, plain or traced, wall or processor seconds of a step. Runs in a new process without threads."""
    command = [sys.executable, "-m", "tests.benchmarks.paired_steps", *map(str, (*grid, NUM_PAIRS[grid]))]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=LIMIT_S)
    return np.array(json.loads(done.stdout))


def _seconds(name: str, pairs: Columns) -> Figure:
    low, high = np.percentile(pairs[:, 1], (10, 90))
    return Figure(
        name=name,
        value=float(np.median(pairs[:, 1])),
        unit="s",
        rival="untraced",
        rival_value=float(np.median(pairs[:, 0])),
        low=float(low),
        high=float(high),
    )


def _ratio(name: str, pairs: Columns, *, bound: float | None) -> Figure:
    """Median of traced over plain. The two blocks of a pair are neighbours, so that drift of the machine cancels."""
    ratios = pairs[:, 1] / pairs[:, 0]
    picks = np.random.default_rng(0).integers(len(ratios), size=(NUM_RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(ratios[picks], axis=1), (10, 90))
    median = float(np.median(ratios))
    return Figure(
        name=name, value=median, unit="", low=float(low), high=float(high), bound=bound, note=SPREAD if bound else ""
    )


BENCHMARK = OverheadBenchmark()


def main() -> int:
    """Print the figures. The exit status is 1 if the bound is broken."""
    return report(BENCHMARK.title, BENCHMARK.run(), as_json="--json" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
