"""The hang verdict: accuracy on real dumps, time for a large job, and cost for a healthy job.

python -m tests.benchmarks.hang [--json]        also writes its section of docs/accuracy.md
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tests.benchmarks.figures import Figure, report
from tests.benchmarks.megatron_dumps import MegatronJob, write_dumps
from tests.benchmarks.pages import write_section
from tests.benchmarks.torch_analyzer import beside_torch, labelled_cases

LARGE = MegatronJob(tp=8, pp=8, dp=192, behind=7777)
MAX_SECONDS = 60.0
MAX_MIB = 4096.0
LIMIT_S = 300
NUM_PAIRS = 40
NOTE_CHARACTERS = 100
TURNS_S = 1200
MAX_RATIO = 1.01
NUM_RESAMPLES = 2_000
READINESS = "worker server, flight recorder of 2000 entries, agent; spread of the median"
MIB = 2**20
LOOK_S = 0.02


class HangBenchmark:
    """The dumps of two real jobs, those of a job of 12,288 ranks, and the cost of readiness in a healthy job."""

    title = "Hang verdict"
    command = "python -m tests.benchmarks.hang"

    def run(self) -> list[Figure]:
        return [_real_cases(self.command), *_large_job(), *_readiness()]


def _real_cases(command: str) -> Figure:
    """Cases whose verdict is not exact. The accuracy page has the details."""
    name = "labelled real hangs without exact verdict"
    cases = labelled_cases()
    if not cases:
        return Figure(name=name, value=None, unit="", note="no real data here: ../shared/data or RANKSCOPE_REAL_DATA")
    section, exact = beside_torch(cases)
    write_section("Real flight-recorder dumps, compared with torch's analyzer", command, section)
    return Figure(name=name, value=0.0 if exact else 1.0, unit="", bound=0.0, note=f"{len(cases)} cases")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A process that has ended."""

    out: str
    seconds: float
    peak_mib: float
    """Resident memory of the process and all of its children together."""


def _large_job() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="rankscope-dumps-") as name:
        write_dumps(LARGE, Path(name))
        ran = _measured([sys.executable, "-m", "ui.cli", "diagnose", "hang", "--dumps", name, "--json"])
    verdict = json.loads(ran.out)
    wrong = [finding["ranks"] for finding in verdict["findings"]] != [[LARGE.behind]]
    note = f"{LARGE.world_size} dumps: tp {LARGE.tp}, pp {LARGE.pp}, dp {LARGE.dp}"
    return [
        Figure(name="verdict for a large job", value=ran.seconds, unit="s", bound=MAX_SECONDS, note=note),
        Figure(name="its peak memory", value=ran.peak_mib, unit="MiB", bound=MAX_MIB),
        Figure(name="its verdict is not exact", value=float(wrong), unit="", bound=0.0, note=_headline(verdict)),
    ]


def _readiness() -> list[Figure]:
    """Cost for a step of the readiness for a hang, without a hang."""
    command = [sys.executable, "-m", "tests.benchmarks.evidence_cost", *map(str, (1, 1, 2, NUM_PAIRS))]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, timeout=TURNS_S)
    spent = np.array(json.loads(done.stdout))
    wall, processor = spent[0, :, :, 0], spent[:, :, :, 1].sum(axis=0)
    return [
        _ratio("step with / without evidence collection, tp 2, wall", wall, bound=None),
        _ratio("step with / without evidence collection, processor time of all ranks", processor, bound=MAX_RATIO),
    ]


def _ratio(name: str, pairs: "np.ndarray[Any, np.dtype[np.float64]]", *, bound: float | None) -> Figure:
    """Median over pairs of neighbours, its spread bootstrapped."""
    ratios = pairs[:, 1] / pairs[:, 0]
    picks = np.random.default_rng(0).integers(len(ratios), size=(NUM_RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(ratios[picks], axis=1), (10, 90))
    value = float(np.median(ratios))
    return Figure(name=name, value=value, unit="", low=float(low), high=float(high), bound=bound, note=READINESS)


def _headline(verdict: dict[str, Any]) -> str:
    return "; ".join(finding["summary"] for finding in verdict["findings"])[:NOTE_CHARACTERS]


def _measured(command: list[str]) -> Ran:
    """Run a command to its end, and sample its memory."""
    began = time.monotonic()
    environment = {**os.environ, "NO_COLOR": "1"}
    with (
        tempfile.TemporaryFile("w+") as out,
        subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, env=environment) as process,
    ):
        watched, peak = psutil.Process(process.pid), 0
        while process.poll() is None and time.monotonic() - began < LIMIT_S:
            with suppress(psutil.NoSuchProcess):
                family = [watched, *watched.children(recursive=True)]
                peak = max(peak, sum(one.memory_info().rss for one in family))
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_S)
        process.kill()
        seconds = time.monotonic() - began
        out.seek(0)
        return Ran(out=out.read(), seconds=seconds, peak_mib=peak / MIB)


BENCHMARK = HangBenchmark()


def main() -> int:
    """Print the figures. The exit status is 1 if a bound is broken."""
    return report(BENCHMARK.title, BENCHMARK.run(), as_json="--json" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
