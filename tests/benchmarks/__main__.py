"""Run every benchmark, or those named, one after another. Each rewrites its section of ``docs/benchmarks.md``.

python -m tests.benchmarks [NAME ...]
"""

import importlib
import os
import platform
import sys
from pathlib import Path

from tests.benchmarks.figures import Benchmark, Figure, as_markdown, report
from tests.benchmarks.pages import BENCHMARKS, write_section

NAMES = (
    "span_cost",
    "overhead",
    "attach",
    "profiling",
    "soak",
    "rank_files",
    "ingest",
    "fleet_load",
    "fleet_return",
    "samplers",
    "hang",
    "whatif",
    "storage",
    "queries",
    "board",
    "full_store",
    "sizes",
    "group_init",
    "timeline_frames",
    "dashboard",
    "snapshot",
    "window_attention",
    "lamb_batch",
)


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all, each into its section of the page. Returns 1 if a bound is broken."""
    status = 0
    for name in names or NAMES:
        benchmark = benchmark_named(name)
        print(f"==> {benchmark.title}", file=sys.stderr)
        figures: list[Figure] = benchmark.run()
        status |= report(benchmark.title, figures, as_json=False)
        as_text = getattr(benchmark, "as_text", as_markdown)
        text = f"{as_text(figures)}\n\n{describe_machine()}"
        write_section(benchmark.title, benchmark.command, text, BENCHMARKS)
    return status


def benchmark_named(name: str) -> Benchmark:
    """The benchmark in ``tests/benchmarks/NAME.py``."""
    return importlib.import_module(f"tests.benchmarks.{name}").BENCHMARK


def describe_machine() -> str:
    """Processor, cores and Python version, on which the figures depend."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return (
        f"Machine: {os.cpu_count()} cores of {model}, no GPU, shared with others; Python {platform.python_version()}."
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
