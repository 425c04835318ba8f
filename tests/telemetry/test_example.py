"""The example instruments a plain DDP loop with fewer than fifteen added lines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.telemetry.recording import recorded

EXAMPLE = Path(__file__).parents[2] / "examples" / "instrument_your_loop.py"


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The spool that two ranks under torchrun wrote."""
    folder = tmp_path_factory.mktemp("spool")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(EXAMPLE)]
    environment = {**os.environ, "RANKSCOPE_SPOOL": str(folder), "STEPS": "5", "OMP_NUM_THREADS": "1"}
    subprocess.run(command, env=environment, check=True, timeout=240, cwd=EXAMPLE.parents[1])
    return folder


def test_example_adds_fewer_than_fifteen_lines() -> None:
    assert 0 < sum("# +" in line for line in EXAMPLE.read_text().splitlines()[12:]) < 15


@pytest.mark.gloo
@pytest.mark.parametrize("rank", [0, 1])
def test_every_stage_of_every_step_is_recorded(spool: Path, rank: int) -> None:
    found = recorded(spool, rank)
    for stage in ("step", "data-load", "forward-compute", "backward-compute", "optimizer"):
        assert found.stages.count(stage) == 5
    assert [metric for metric, _ in found.samples] == ["loss"] * 5
    assert found.reader.identity().rank == rank


@pytest.mark.gloo
def test_gradient_all_reduces_are_recorded_on_both_ranks(spool: Path) -> None:
    ours, theirs = recorded(spool, 0), recorded(spool, 1)
    assert ours.stages.count("grads-all-reduce") == theirs.stages.count("grads-all-reduce") >= 5


@pytest.mark.gloo
def test_both_ranks_record_the_same_run_id(spool: Path) -> None:
    assert recorded(spool, 0).reader.identity().run_id == recorded(spool, 1).reader.identity().run_id
