"""An executor whose ranks cannot start yet, and the real commands that it runs for a paired test."""

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import telemetry
from telemetry.errors import UsageError
from telemetry.process.child_process import birth_of, has_ended
from telemetry.topology import Topology
from tests.deadline import until
from tests.each_case import each_case
from tests.integration.processes import free_port
from tests.trainer.jobs import small_config
from trainer import rank_processes
from trainer.checkpoint.claim import claimed
from trainer.checkpoint.folder import complete_name
from trainer.drive import check_keeper, executor
from trainer.drive.check_keeper import CheckKeeper
from trainer.drive.checks import why_failed
from trainer.drive.driver_client import FreePort
from trainer.drive.earlier_ranks import living, recorded_ranks
from trainer.drive.executor import Executor
from trainer.drive.folder import JobFile, JobFolder, held_lock
from trainer.drive.node_check import NodeCheck, read_verdict
from trainer.drive.reachability import unreached_among
from trainer.drive.records import CheckReport, Order, PairRun, PairsOrder, Rollback, Work
from trainer.drive.settings import DriveConfig
from trainer.run_options import RunOptions

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


def stand_still(*_: object) -> int:
    """A rank that never trains and never saves."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(1, b"ready")
    while True:
        signal.pause()


def test_first_node_waits_for_a_claimed_checkpoint_folder_and_then_reports_the_error(
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


def test_failed_start_of_an_attempt_leaves_no_process_releases_the_claim_and_keeps_the_port(folder: JobFolder) -> None:
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


def test_rollback_without_a_usable_checkpoint_is_reported(folder: JobFolder) -> None:
    checkpoints = folder.out / "checkpoints"
    with claimed(checkpoints, small_config(dp=2)):
        (checkpoints / complete_name(5)).mkdir(mode=0o700)
    options = RunOptions(out=folder.out, run_id="run", checkpoints=checkpoints)
    job = JobFile(train=small_config(dp=2), options=options, drive=DriveConfig(num_nodes=1))
    node = Executor(folder, job, "node-0", address="", tokens=None)
    node._obey(Order(work=Work.TRAIN, attempt=1, rollback=Rollback(attempt=0, before_step=3)))
    report = node._report()
    assert (report.attempt, report.no_checkpoint) == (1, True)
    assert "has less than 3 steps" in report.error
    node._port.release()


def test_a_signal_ends_an_executor_that_waits_for_checkpoints_and_agents(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rank never saves, and its agent has records that it cannot send."""
    options = RunOptions(out=folder.out, run_id="run", collector="http://127.0.0.1:9")
    job = JobFile(train=small_config(), options=options, drive=DriveConfig(num_nodes=1))
    (folder.node("node-0") / "spool" / "run" / "0" / "rank-00000").mkdir(parents=True)
    monkeypatch.setattr(rank_processes, "run_and_exit", stand_still)
    node = Executor(folder, job, "node-0", address="", tokens=None)
    node._obey(Order(work=Work.TRAIN, attempt=0))
    assert node._attempt is not None
    ranks, agent = node._attempt.ranks, node._attempt.agent
    log = folder.out / "logs" / "rank-00000.log"
    until(lambda: log.exists() and log.read_text() == "ready", what="the rank")
    waited: list[float] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        node.interrupt(signal.SIGINT)
        return False

    monkeypatch.setattr(ranks, "wait", wait)
    node._leave()
    assert len(waited) == 1, "it asks the ranks to save, and the signal arrives meanwhile"
    assert ranks.statuses == {0: -signal.SIGKILL}
    assert agent._process is not None
    assert agent._process.poll() is not None


def test_executor_and_its_ranks_end_with_an_error_when_the_job_folder_is_deleted(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its agent has records that it cannot send, and no driver answers."""
    options = RunOptions(out=folder.out, run_id="run", collector="http://127.0.0.1:9")
    job = JobFile(train=small_config(), options=options, drive=DriveConfig(num_nodes=1))
    (folder.node("node-0") / "spool" / "run" / "0" / "rank-00000").mkdir(parents=True)
    monkeypatch.setattr(rank_processes, "run_and_exit", stand_still)
    monkeypatch.setattr(executor, "ORPHAN_S", 5.0)
    with held_lock(folder.node("node-0")) as lock:
        node = Executor(folder, job, "node-0", address="", tokens=None, lock=lock)
        node._obey(Order(work=Work.TRAIN, attempt=0))
        assert node._attempt is not None
        log = folder.out / "logs" / "rank-00000.log"
        until(lambda: log.exists() and log.read_text() == "ready", what="the rank")
        shutil.rmtree(folder.out)
        node.run()
    assert node._attempt.ranks.statuses == {0: -signal.SIGKILL}
    agent = node._attempt.agent._process
    assert agent is not None
    assert agent.poll() is not None
    error = capfd.readouterr().err
    assert f"executor of node-0: the folder {folder.out} was deleted; its ranks are killed" in error
    assert "no driver answered" not in error


def test_check_starts_only_after_all_ranks_on_the_node_have_ended(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These are ranks of this executor, and ranks of an earlier executor of the node."""
    job = JobFile(
        train=small_config(), options=RunOptions(out=folder.out, run_id="run"), drive=DriveConfig(num_nodes=1)
    )
    monkeypatch.setattr(rank_processes, "run_and_exit", stand_still)
    first = Executor(folder, job, "node-0", address="", tokens=None)
    first._obey(Order(work=Work.TRAIN, attempt=0))
    assert first._attempt is not None
    (pid,) = first._attempt.living.values()
    started: list[bool] = []

    def check(*_: object) -> NodeCheck:
        started.append(has_ended(pid, born))
        raise OSError("no process in this test")

    born = birth_of(pid)
    monkeypatch.setattr(check_keeper, "NodeCheck", check)
    monkeypatch.setattr(executor, "recorded_ranks", lambda *_: ((pid, born),))
    second = Executor(folder, job, "node-0", address="", tokens=None)
    second._obey(Order(work=Work.CHECK, check=1))
    assert started == [], "the rank still lives"
    first._obey(Order(work=Work.CHECK, check=1))
    second._obey(Order(work=Work.CHECK, check=1))
    assert started == [True, True]


def test_running_check_is_killed_before_ranks_start(folder: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobFile(
        train=small_config(), options=RunOptions(out=folder.out, run_id="run"), drive=DriveConfig(num_nodes=1)
    )
    node = Executor(folder, job, "node-0", address="", tokens=None)
    node._obey(Order(work=Work.CHECK, check=1))
    assert node._checks._check is not None
    process = node._checks._check._command._process
    found: list[int | None] = []

    def start(*_: object) -> None:
        found.append(process.poll())
        raise OSError("no ranks in this test")

    monkeypatch.setattr(executor, "Attempt", start)
    node._obey(Order(work=Work.TRAIN, attempt=0))
    assert found == [-signal.SIGKILL]


def test_recorded_ranks_are_those_of_the_run_with_a_living_process(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    telemetry.start("run", topology=Topology(dp=1), rank=0, local_rank=0, attempt=0, spool=spool, agent=False)
    telemetry.stop()
    own = os.getpid(), birth_of(os.getpid())
    assert recorded_ranks(spool, "run") == (own,)
    assert recorded_ranks(spool, "other") == ()
    assert living([own, (own[0], "another birth"), (own[0], "")]) == (own,)


def test_zombie_process_counts_as_ended() -> None:
    with subprocess.Popen(["true"]) as process:
        born = birth_of(process.pid)
        until(lambda: has_ended(process.pid, born), what="its end")
        assert birth_of(process.pid) == born, "it is still listed"


def test_free_port_is_kept_until_released_and_changes_when_it_is_in_use() -> None:
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


def keep_killing(keeper: CheckKeeper, times: int) -> CheckReport:
    """Kill the command of a check this many times. Return its report."""
    for _ in range(times):
        keeper.obey(Order(work=Work.CHECK, check=3))
        assert keeper.checked is None
        assert keeper._check is not None
        process = keeper._check._command._process
        process.kill()
        process.wait()
        keeper.obey(Order(work=Work.CHECK, check=3))
    assert keeper.checked is not None
    return keeper.checked


def test_killed_check_is_retried_and_a_second_kill_is_not_a_failure(folder: JobFolder) -> None:
    """For example, the OOM killer kills it."""
    keeper = CheckKeeper(folder.node("node-0"), "node-0", FreePort(""))
    try:
        found = keep_killing(keeper, 2)
    finally:
        keeper.end()
    assert (found.number, found.unknown) == (3, "the command was killed by SIGKILL")
    assert why_failed(found) == ""


def test_peer_with_a_closed_port_is_reached_and_an_unroutable_or_invalid_one_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        peers = {
            "open": f"127.0.0.1:{server.getsockname()[1]}",
            "closed": f"127.0.0.1:{free_port()}",
            "away": "198.51.100.7:9",  # for documentation; not routed from the loopback address
        }
        assert unreached_among(peers, "127.0.0.1") == ("away",)
        odd = {"name": "no.such.name.invalid:9", "port": "127.0.0.1:99999", "no-port": "127.0.0.1:"}
        assert unreached_among(odd, "127.0.0.1") == ("name", "no-port", "port")
        assert unreached_among(peers, "198.51.100.8") == ("away", "closed", "open")  # not an address of this host


def test_two_nodes_run_the_paired_test_and_get_the_same_result(folder: JobFolder) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    keepers = [CheckKeeper(folder.node(f"node-{index}"), f"node-{index}", FreePort("")) for index in range(2)]

    def all_paired() -> bool:
        for index, keeper in enumerate(keepers):
            pairs = PairsOrder(number=7, endpoint=endpoint, index=index, nodes=2, patience_s=PAIR_S)
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


@each_case("text", ["", "error: no torch", "[]", json.dumps({"bad": [], "absent": []})])
def test_invalid_output_of_the_paired_test_raises_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="printed no verdict"):
        read_verdict(1, text)
