"""Two gloo ranks of a script that uses a framework, run by an interpreter in which the framework is installed.

RANKSCOPE_ADAPTERS_PYTHON names the interpreter with the frameworks (`make adapters`). Without it, the tests use their
own, and are skipped if it lacks the framework. Such an interpreter needs torch and NumPy: all that a rank needs.
"""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from diagnose.findings import Finding
from diagnose.pipeline import diagnose_run
from telemetry.stages import Stage
from tests.integration.processes import free_port
from tests.telemetry.attach.entry_points import installed
from tests.telemetry.attach.forked_ranks import NUM_RANKS, run_forked
from tests.telemetry.recording import Recorded, recorded
from ui.cli.readers import open_spool

LIMIT_S = 280
SLOW_RANK = 1
PYTHON = os.environ.get("RANKSCOPE_ADAPTERS_PYTHON", sys.executable)
RUN = "adapted"
IN_A_ROW = (Stage.STEP, Stage.EVALUATION, Stage.CHECKPOINT_WRITE)
PROBLEMS = {"attach-error", "attach-missing", "collectives-untraced", "spans-dropped"}


def needs(module: str) -> pytest.MarkDecorator:
    """Skip tests of a framework that is not installed."""
    if sys.executable == PYTHON:
        is_missing = find_spec(module.partition(".")[0]) is None
    else:
        is_missing = subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode != 0
    return pytest.mark.skipif(is_missing, reason=f"{module} is not installed: run `make adapters`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """Two ranks that have ended."""

    folder: Path
    losses: list[list[str]]
    """Lines of each rank on stdout that begin with ``loss``."""
    errors: list[str]
    """stderr of each rank."""

    def recorded(self, rank: int = 0) -> Recorded:
        return recorded(self.folder / "spool", rank)

    def counts(self, rank: int = 0) -> Counter[str]:
        """Spans of each stage."""
        return Counter(self.recorded(rank).stages)

    def steps_of(self, stage: Stage, rank: int = 0) -> list[int]:
        """Step of each span of a stage."""
        spans = self.recorded(rank).spans
        steps: list[int] = spans[spans["stage"] == stage]["step"].tolist()
        return steps

    def overlaps(self) -> bool:
        """Whether two of the steps, evaluations and checkpoints overlap."""
        spans = self.recorded().spans
        spans = np.sort(spans[np.isin(spans["stage"], IN_A_ROW)], order="start_ns")
        return bool((spans["start_ns"][1:] < (spans["start_ns"] + spans["duration_ns"])[:-1]).any())

    def problems(self, rank: int = 0) -> set[str]:
        """Names of marks that report something that could not be recorded."""
        return PROBLEMS & {name for name, _ in self.recorded(rank).marks}

    def suspects(self) -> list[list[int]]:
        """Ranks that findings name."""
        return [list(finding.ranks) for finding in self.findings() if finding.ranks]

    def findings(self) -> list[Finding]:
        """What `rankscope diagnose --spool` finds."""
        with open_spool(self.folder / "spool") as reader:
            return diagnose_run(reader, RUN, 0).findings


def script(name: str) -> str:
    """Path of a script in this folder. It is not imported: the tests may lack its framework."""
    return str(Path(__file__).parent / f"{name}.py")


def train(
    job: str, folder: Path, *arguments: str, slow: bool = False, forks: bool = False, **variables: str
) -> Trained:
    """Run a script on two ranks until they end. Its first argument is a folder for its own files.

    ``forks``: import the framework once and fork the ranks. Otherwise each rank is a new interpreter.
    """
    folder.mkdir()
    environment = installed(
        folder,
        WORLD_SIZE=str(NUM_RANKS),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(free_port()),
        RANKSCOPE_SPOOL=str(folder / "spool"),
        RANKSCOPE_RUN=RUN,
        OMP_NUM_THREADS="1",
        HF_HUB_OFFLINE="1",
        SLOW_RANK=str(SLOW_RANK) if slow else "",
        **variables,
    )
    if forks:
        outputs = run_forked(folder, environment, job, str(folder / "out"), *arguments, python=PYTHON, limit_s=LIMIT_S)
    else:
        outputs = _run_ranks([PYTHON, job, str(folder / "out"), *arguments], folder, environment)
    losses = [[line for line in out.splitlines() if line.startswith("loss")] for out, _ in outputs]
    return Trained(folder=folder, losses=losses, errors=[error for _, error in outputs])


def _run_ranks(command: list[str], folder: Path, environment: dict[str, str]) -> list[tuple[str, str]]:
    """What each rank wrote to stdout and to stderr."""
    ranks = [
        subprocess.Popen(
            command,
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(NUM_RANKS)
    ]
    try:
        outputs = [rank.communicate(timeout=LIMIT_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * NUM_RANKS, outputs
    return outputs
