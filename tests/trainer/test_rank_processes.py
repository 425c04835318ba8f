"""Start and end of rank processes. Either all ranks start, or none."""

import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.deadline import until
from tests.trainer.jobs import small_config
from trainer import rank_processes
from trainer.config import TrainConfig
from trainer.rank import Data, Seat
from trainer.rank_messages import About, sender_over
from trainer.rank_processes import RankProcesses
from trainer.run_options import RunOptions

FULL = "checkpoint after step 3 is not written: the disk is full"


def test_started_ranks_are_ended_when_another_rank_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    fork = os.fork

    def fork_twice() -> int:
        if len(started) == 2:
            raise BlockingIOError("too many processes")
        if pid := fork():
            started.append(pid)
        return pid

    monkeypatch.setattr(rank_processes, "run_and_exit", lambda *_: signal.pause())
    monkeypatch.setattr(os, "fork", fork_twice)
    seats = [Seat(rank=rank, local_rank=rank, world_size=3, init_method="") for rank in range(3)]
    with pytest.raises(BlockingIOError, match="too many processes"):
        RankProcesses(seats, small_config(dp=3), RunOptions(out=tmp_path))
    assert len(started) == 2
    assert not any(map(psutil.pid_exists, started))


def fail(seat: Seat, _: TrainConfig, __: RunOptions, ___: Data) -> int:
    """A rank that cannot write two checkpoints, can write the third one if it is rank 0, and fails."""
    send = sender_over(seat.messages)
    for text in (FULL, FULL, "" if seat.rank == 0 else FULL):
        send(About.CHECKPOINT, text)
    send(About.FAILURE, f"OSError: rank {seat.rank}\nfailed" + 9_999 * "." + 9_999 * "\x1b")
    return 1


def test_last_messages_of_ranks_are_available_after_the_ranks_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_processes, "run_and_exit", fail)
    seats = [Seat(rank=rank, local_rank=rank, world_size=3, init_method="") for rank in range(3)]
    ranks = RankProcesses(seats, small_config(dp=3), RunOptions(out=tmp_path))
    until(lambda: not ranks.living, what="their end")
    ranks.kill()
    assert ranks.checkpoint_problem == FULL
    for rank in range(3):
        assert f"rank {rank} ended with status 1 (OSError: rank {rank} failed...." in ranks.first_failures()
    assert len(ranks.failure(0)) < 1000
    assert ranks.failure(0).isprintable()


def end_when_asked(seat: Seat, _: TrainConfig, options: RunOptions, ___: Data) -> int:
    """A rank that needs a moment to end after SIGTERM."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: asked.append(number))
    (options.out / f"ready-{seat.rank}").touch()
    while not asked:
        time.sleep(0.01)
    time.sleep(0.2)
    return 0


def test_ranks_get_a_grace_period_before_they_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes a rank that SIGSTOP has stopped."""
    monkeypatch.setattr(rank_processes, "run_and_exit", end_when_asked)
    monkeypatch.setattr(rank_processes, "GRACE_S", 60.0)
    seats = [Seat(rank=rank, local_rank=rank, world_size=2, init_method="") for rank in range(2)]
    ranks = RankProcesses(seats, small_config(dp=2), RunOptions(out=tmp_path))
    until(lambda: len([*tmp_path.glob("ready-*")]) == 2, what="both ranks run")
    os.kill(ranks.pids[1], signal.SIGSTOP)
    ranks.end()
    assert ranks.statuses == {0: 0, 1: 0}


def test_a_log_that_cannot_be_opened_is_reported_before_a_rank_starts(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir(mode=0o700)
    os.mkfifo(tmp_path / "logs" / "rank-00000.log")
    seats = [Seat(rank=0, local_rank=0, world_size=1, init_method="")]
    before = psutil.Process().children()
    with pytest.raises(OSError, match=r"rank-00000\.log"):
        RankProcesses(seats, small_config(), RunOptions(out=tmp_path))
    assert psutil.Process().children() == before
