"""Time of a what-if analysis: a published trace, compared with the analyzer of its publishers, and 12,288 ranks.

python -m tests.benchmarks.whatif [--json]

The analyzer of arXiv 2505.05713 is run if ``RANKSCOPE_STRAGGLER_ANALYSIS`` names a checkout. Its interpreter is
``RANKSCOPE_STRAGGLER_ANALYSIS_PYTHON``, which has the requirements of the analyzer.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.model.operations import operations_of
from diagnose.whatif.analysis import WhatIf, analyse, replayed
from telemetry.imports.interface import ImportedRun, ImportOptions
from telemetry.imports.straggler_analysis import import_straggler_analysis
from telemetry.stages import Stage
from tests.benchmarks.figures import Figure, report

TURNS = 9
MAX_RATIO = 0.1
MAX_SECONDS = 60.0
MAX_MIB = 8192.0
LARGE_STEPS = 17
LIMIT_S = 600
RIVAL = "published analyzer"
ASK_RIVAL = """
import json, sys, time
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/analyzer"]
import yaml
from analyzer.metatypes import JobMeta
from analyzer.wia import WhatIfAnalyzer
seconds = []
for _ in range(int(sys.argv[3])):
    began = time.perf_counter()
    meta = JobMeta(**yaml.safe_load(open(sys.argv[2] + "/meta-ST.yaml")))
    result = WhatIfAnalyzer(sys.argv[2] + "/trace-ST.parquet", root=None, steps=None).analyze(meta)
    seconds.append(time.perf_counter() - began)
print(json.dumps({"seconds": seconds, "slowdown": result.blocking_slowdown}))
"""


class WhatIfBenchmark:
    """A trace of eight ranks, and ten million operations."""

    title = "What-if analysis"
    command = "python -m tests.benchmarks.whatif"

    def run(self) -> list[Figure]:
        return [*_published(), *_large()]


def _published() -> list[Figure]:
    root = Path(os.environ.get("RANKSCOPE_REAL_DATA", Path(__file__).parents[3] / "shared" / "data"))
    folder = root / "straggler-analysis"
    name = "trace ST, from the file to all figures"
    if not (folder / "trace-ST.parquet").is_file():
        return [
            Figure(name=name, value=None, unit="ms", note="no real data here: ../shared/data or RANKSCOPE_REAL_DATA")
        ]
    _from_file(folder)
    ours = [_timed(folder) for _ in range(TURNS)]
    theirs = _theirs(folder)
    run = import_straggler_analysis([folder / "trace-ST.parquet"], ImportOptions())
    note = f"{run.spans.num_rows - run.num_steps * run.topology.world_size:,} operations, 32 steps"
    value, low, high = (float(np.percentile(ours, at)) * 1e3 for at in (50, 10, 90))
    if not theirs:
        why = "the rival was not run: RANKSCOPE_STRAGGLER_ANALYSIS is not set"
        return [Figure(name=name, value=value, low=low, high=high, unit="ms", note=f"{note}; {why}")]
    rival_ms = median(theirs) * 1e3
    return [
        Figure(name=name, value=value, low=low, high=high, unit="ms", rival=RIVAL, rival_value=rival_ms, note=note),
        Figure(name="time divided by the analyzer's", value=value / rival_ms, unit="", bound=MAX_RATIO),
    ]


def _timed(folder: Path) -> float:
    began = time.perf_counter()
    _from_file(folder)
    return time.perf_counter() - began


def _from_file(folder: Path) -> WhatIf:
    run = import_straggler_analysis([folder / "trace-ST.parquet"], ImportOptions())
    ready = replayed(operations_of(*_in_order(run)), run.topology)
    assert ready is not None
    return analyse(ready, run.topology)


def _in_order(run: ImportedRun) -> tuple[pa.Table, "np.ndarray[tuple[int], np.dtype[np.int64]]", int]:
    """The operations of a run as a store returns them, the numbers of its steps, and the number of its ranks."""
    rows = run.spans.filter(pc.not_equal(run.spans["stage"], int(Stage.STEP)))
    order = [(name, "ascending") for name in ("stage", "step", "rank", "start_ns", "seq")]
    steps = np.unique(rows["step"].to_numpy()).astype(np.int64)
    return rows.sort_by(order), steps, run.topology.world_size


def _theirs(folder: Path) -> list[float]:
    """Seconds of each turn of the rival. Empty if it is not available."""
    checkout = os.environ.get("RANKSCOPE_STRAGGLER_ANALYSIS")
    if not checkout:
        return []
    python = os.environ.get("RANKSCOPE_STRAGGLER_ANALYSIS_PYTHON", sys.executable)
    command = [python, "-c", ASK_RIVAL, checkout, str(folder), str(TURNS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    return list(json.loads(done.stdout.splitlines()[-1])["seconds"])


def _large() -> list[Figure]:
    """Analyze a large job in a new process, so that its memory can be measured alone."""
    command = [sys.executable, "-m", "tests.benchmarks.large_whatif", str(LARGE_STEPS)]
    done = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=LIMIT_S).stdout)
    note = f"{done['operations']:,} operations: dp 192, pp 8, tp 8, {LARGE_STEPS} steps; one rank slow, factor 1.3"
    return [
        Figure(name="12,288 ranks, all figures", value=done["seconds"], unit="s", bound=MAX_SECONDS, note=note),
        Figure(name="peak memory, including the run", value=done["peak_mib"], unit="MiB", bound=MAX_MIB),
        Figure(name="worst worker is not the slow one", value=float(not done["exact"]), unit="", bound=0.0),
    ]


BENCHMARK = WhatIfBenchmark()


def main() -> int:
    """Print the figures. The exit status is 1 if a bound is broken."""
    return report(BENCHMARK.title, BENCHMARK.run(), as_json="--json" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
