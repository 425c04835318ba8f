"""Every benchmark, one after the other; rewrites ``docs/benchmarks.md``.

python -m tests.benchmarks [NAME ...]
"""

import importlib
import os
import platform
import sys
from pathlib import Path

from tests.benchmarks.figures import Benchmark, Figure, as_markdown, report

NAMES = (
    "span_cost",
    "overhead",
    "soak",
    "ingest",
    "samplers",
    "hang",
    "whatif",
    "storage",
    "queries",
    "timeline_frames",
)
PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
HEADING = """# Benchmarks

Every figure was measured by the command above its table, ours and the rival's in the same run; medians, with the 10th
and 90th percentile beside them. `make bench` rewrites this page and fails where a bound is broken.

{machine} CUDA events on a GPU were not run.
"""


def main(names: list[str]) -> int:
    """Run the benchmarks named, or all; 1 where a bound is broken. Only a run of all rewrites the page."""
    sections, status = [], 0
    for name in names or NAMES:
        benchmark = benchmark_named(name)
        print(f"==> {benchmark.title}", file=sys.stderr)
        figures: list[Figure] = benchmark.run()
        status |= report(benchmark.title, figures, as_json=False)
        sections.append(as_markdown(benchmark.title, benchmark.command, figures))
    if not names:
        PAGE.write_text("\n".join([HEADING.format(machine=describe_machine()), *sections]))
    return status


def benchmark_named(name: str) -> Benchmark:
    """The benchmark in ``tests/benchmarks/NAME.py``."""
    return importlib.import_module(f"tests.benchmarks.{name}").BENCHMARK


def describe_machine() -> str:
    """Processor, cores, Python: what the figures depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return (
        f"Machine: {os.cpu_count()} cores of {model}, no GPU, shared with others; Python {platform.python_version()}."
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
