"""All checks that need a GPU, in one command of under 15 minutes: one GPU, or all of the machine.

    python -m tests.gpu --out DIR [--only CHECK ...]     DIR/gpu.json: each check, what it found, GPUs, driver, torch

Needs torch with CUDA, NumPy and this repository; no store and no network. Some checks need other packages. A check that
lacks one is not run. Each check runs in a separate process, which has a time limit.

Exit status: 0 if no check failed, 1 if a check failed, 2 if there is no GPU, torch or NumPy. With status 2 there is no
report. ``make`` returns 2 instead of 1.
"""

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu.outcome import Outcome, outcome_of, report, write_report

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A module that prints an outcome."""

    name: str
    module: str
    limit_s: float
    gpus: int = 1
    """The number of GPUs that it needs."""
    packages: tuple[str, ...] = ()
    """What it imports besides torch and NumPy."""


OF_TRAINING = ("typer", "rich", "pydantic", "httpx")
"""What `rankscope train` imports."""
CHECKS = (
    Check(name="tests", module="tests.gpu.pytest_files", limit_s=150, packages=("pytest",)),
    Check(name="graph-capture", module="tests.gpu.graph_capture", limit_s=40),
    Check(name="nccl-timing", module="tests.gpu.nccl_timing", limit_s=80),
    Check(name="flight-recorder", module="tests.gpu.nccl_recorder", limit_s=60),
    Check(name="nccl-hang", module="tests.gpu.nccl_hang", limit_s=60, gpus=2),
    Check(name="attached", module="tests.gpu.attached", limit_s=60),
    Check(name="node-checks", module="tests.gpu.node_checks", limit_s=60, packages=(*OF_TRAINING, "pyarrow", "psutil")),
    Check(name="tracing-cost", module="tests.gpu.tracing_cost", limit_s=90, packages=OF_TRAINING),
    Check(name="checkpoints", module="tests.gpu.checkpoints", limit_s=110, packages=OF_TRAINING),
    Check(name="ablation", module="tests.gpu.ablation", limit_s=180, packages=OF_TRAINING),
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description="Checks that need a GPU.")
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu.json")
    names = [check.name for check in CHECKS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="CHECK", help=", ".join(names))
    given = parser.parse_args(arguments)
    obstacle = what_is_missing()
    if obstacle:
        print(f"make gpu: {obstacle}", file=sys.stderr)
        return 2
    machine = describe_machine()
    outcomes = []
    for check in (check for check in CHECKS if check.name in given.only):
        print(f"==> {check.name} (at most {check.limit_s:.0f} s)", file=sys.stderr, flush=True)
        outcomes.append(run(check, num_gpus=len(machine["gpus"])))
        print(f"    {outcomes[-1].status} {outcomes[-1].reason}", file=sys.stderr, flush=True)
    content = report(outcomes, machine)
    print(write_report(given.out, content))
    return 0 if content["passed"] else 1


def what_is_missing() -> str:
    """An error with a hint; empty where the checks can run."""
    missing = [name for name in ("numpy", "torch") if importlib.util.find_spec(name) is None]
    if missing:
        return (
            f"{sys.executable} has no {' and no '.join(missing)}\n\n"
            "hint: name an interpreter that has them: make gpu OUT=DIR PYTHON=/path/to/python"
        )
    import torch  # noqa: PLC0415 - may be missing

    if not torch.cuda.is_available():
        return (
            f"torch {torch.__version__} sees no CUDA device\n\n"
            "hint: run it on a machine with an NVIDIA GPU, with a torch for CUDA: make gpu OUT=DIR PYTHON=..."
        )
    return ""


def describe_machine() -> dict[str, Any]:
    import torch  # noqa: PLC0415 - may be missing

    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if torch.distributed.is_nccl_available() else None,
        "driver": _driver(),
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
    }


def _driver() -> str:
    """Version of the kernel module. Empty if the kernel does not report it."""
    try:
        return Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except (OSError, IndexError):
        return ""


def run(check: Check, *, num_gpus: int) -> Outcome:
    """The outcome of a check. Nothing of it is left running."""
    if num_gpus < check.gpus:
        return Outcome(name=check.name, status="not-run", reason=f"needs {check.gpus} GPUs, here: {num_gpus}")
    if missing := [name for name in check.packages if importlib.util.find_spec(name) is None]:
        return Outcome(name=check.name, status="not-run", reason=f"{' and '.join(missing)} not installed")
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", check.module],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    exit_status: int | None = None
    try:
        printed, _ = process.communicate(timeout=check.limit_s)
        exit_status = process.returncode
    except subprocess.TimeoutExpired:
        _end_group(process)
        printed, _ = process.communicate()
    finally:
        _end_group(process)
    seconds = round(time.monotonic() - began, 1)
    return outcome_of(check.name, printed, exit_status=exit_status, seconds=seconds, limit_s=check.limit_s)


def _end_group(process: "subprocess.Popen[str]") -> None:
    """Kill the process with its ranks, which it may have left behind."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
