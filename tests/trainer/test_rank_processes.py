"""Ranks are started together with their data loader, or not at all."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.trainer.jobs import small_config
from trainer import rank_processes
from trainer.rank import Seat
from trainer.rank_processes import RankProcesses
from trainer.run_options import RunOptions


def test_no_rank_is_left_if_one_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
