"""The example instruments a plain DDP loop with fewer than fifteen added lines."""

from pathlib import Path

import pytest

from tests.integration.processes import free_port
from tests.telemetry.recording import recorded
from tests.trainer.launchers import start_script

EXAMPLE = Path(__file__).parents[2] / "examples" / "instrument_your_loop.py"


@pytest.fixture(scope="module")
def spool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The spool that two ranks wrote. They have the variables that torchrun sets."""
    folder, log = tmp_path_factory.mktemp("spool"), tmp_path_factory.mktemp("log") / "ranks.log"
    variables = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "example", "STEPS": "5"}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "RANKSCOPE_SPOOL": str(folder)}
    ranks = [start_script(EXAMPLE, log=log, RANK=str(rank), LOCAL_RANK=str(rank), **variables) for rank in range(2)]
    assert [rank.wait(240) for rank in ranks] == [0, 0], log.read_text()
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
