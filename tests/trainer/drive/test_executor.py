"""An executor whose ranks cannot start yet, and the real commands that it runs for a paired test."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from telemetry.errors import UsageError
from tests.deadline import until
from tests.integration.processes import free_port
from tests.trainer.jobs import small_config
from trainer.checkpoint.claim import claimed
from trainer.config import RunOptions
from trainer.drive import executor
from trainer.drive.check_keeper import CheckKeeper
from trainer.drive.driver_client import FreePort
from trainer.drive.executor import Executor
from trainer.drive.folder import JobFile, JobFolder
from trainer.drive.node_check import read_verdict
from trainer.drive.records import Order, PairRun, PairsOrder, Work
from trainer.drive.settings import DriveConfig

PAIR_S = 120.0


@pytest.fixture
def folder(tmp_path: Path) -> JobFolder:
    found = JobFolder(tmp_path / "job")
    found.make()
    return found


@pytest.fixture
def claim(folder: JobFolder) -> Iterator[Path]:
    """The folder of checkpoints, which ranks of a separated node still hold."""
    with claimed(folder.out / "checkpoints", small_config(dp=2)):
        yield folder.out / "checkpoints"


def test_the_first_node_waits_for_the_folder_of_checkpoints_and_then_says_why(
    folder: JobFolder, claim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = RunOptions(out=folder.out, run_id="run", checkpoints=claim)
    job = JobFile(train=small_config(dp=2), options=options, drive=DriveConfig(num_nodes=2))
    node = Executor(folder, job, "node-0", address="", tokens=None)
    order = Order(work=Work.TRAIN, attempt=1)
    node._obey(order)
    assert node._report().error == ""
    assert node._report().attempt == -1
    monkeypatch.setattr(executor, "CLAIM_S", 0.0)
    node._obey(order)
    assert "another job writes into" in node._report().error
    assert node._report().attempt == 1


def test_no_rank_lives_and_nothing_is_held_after_an_attempt_that_could_not_start(folder: JobFolder) -> None:
    checkpoints = folder.out / "checkpoints"
    options = RunOptions(out=folder.out, run_id="run", checkpoints=checkpoints, collector="http://127.0.0.1:9")
    job = JobFile(train=small_config(dp=2), options=options, drive=DriveConfig(num_nodes=1))
    (folder.out / "logs" / "agent.log").mkdir(parents=True)  # the agent cannot start
    node = Executor(folder, job, "node-0", address="127.0.0.1", tokens=None)
    before = psutil.Process().children()
    node._obey(Order(work=Work.TRAIN, attempt=0))
    assert "agent.log" in node._report().error
    assert psutil.Process().children() == before
    with claimed(checkpoints, job.train), socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", node._report().port))
    node._port.release()


def test_a_port_is_kept_until_it_is_released_and_then_another_one() -> None:
    port = FreePort("127.0.0.1")
    number = port.number
    port.take()
    assert port.number == number
    port.release()
    with socket.socket() as other:
        other.bind(("127.0.0.1", number))
        port.take()
    assert port.number not in (0, number)
    port.release()


def test_two_nodes_run_the_paired_test(folder: JobFolder) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    keepers = [CheckKeeper(folder.node(f"node-{index}"), f"node-{index}", FreePort("")) for index in range(2)]

    def all_paired() -> bool:
        for index, keeper in enumerate(keepers):
            pairs = PairsOrder(number=7, endpoint=endpoint, index=index, nodes=2)
            keeper.obey(Order(work=Work.CHECK, check=3, pairs=pairs))
        return all(keeper.paired is not None for keeper in keepers)

    try:
        until(all_paired, seconds=PAIR_S, what="both verdicts")
    finally:
        for keeper in keepers:
            keeper.end()
    found = [keeper.paired for keeper in keepers]
    assert found[0] == found[1]
    assert found[0] is not None
    assert (found[0].number, found[0].problem) == (7, "")
    assert set(found[0].runs) == {PairRun(members=(0, 1), failed=False)}


@pytest.mark.parametrize("text", ["", "error: no torch", "[]", json.dumps({"bad": [], "absent": []})], ids=repr)
def test_other_output_of_the_paired_test_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="printed no verdict"):
        read_verdict(1, text)
