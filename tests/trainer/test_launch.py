import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from telemetry.errors import UsageError
from tests.deadline import until
from tests.trainer.jobs import Job, alive, run_job, small_config, start_job
from trainer.rank_status import NOT_FINITE
from trainer.run import launch
from trainer.run_options import RunOptions

pytestmark = pytest.mark.gloo

FOREVER = 100_000


@contextmanager
def endless_job(out: Path, **options: Any) -> Iterator[tuple[Job, list[int]]]:
    """A job of two ranks that trains until it is ended, and the pids of its ranks."""
    job = start_job(small_config(num_steps=FOREVER, dp=2), out, **options)
    try:
        until(lambda: job.steps_done() >= 2, seconds=60, what="two steps")
        yield job, job.rank_pids()
    finally:
        job.process.kill()
        job.process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_a_signal_ends_the_launcher_and_every_rank(number: signal.Signals, tmp_path: Path) -> None:
    with endless_job(tmp_path) as (job, pids):
        assert len(pids) == 2
        job.process.send_signal(number)
        assert job.finish().status == 128 + number
        assert not any(alive(pid) for pid in pids)


def test_no_rank_outlives_a_launcher_that_is_killed(tmp_path: Path) -> None:
    with endless_job(tmp_path) as (job, pids):
        job.process.kill()
        until(lambda: not any(alive(pid) for pid in pids), what="ranks gone")


@pytest.mark.long
def test_a_rank_killed_from_outside_ends_the_job_and_is_named(tmp_path: Path) -> None:
    with endless_job(tmp_path) as (job, pids):
        os.kill(pids[1], signal.SIGKILL)
        ended = job.finish()
        assert ended.status == 1
        assert f"rank 1 was killed by SIGKILL (pid {pids[1]})" in ended.words
        assert "hint:" in ended.words
        assert not any(alive(pid) for pid in pids)


@pytest.mark.long
def test_each_rank_has_a_log_and_the_launcher_shows_progress(tmp_path: Path) -> None:
    ended = run_job(small_config(num_steps=3, dp=2), tmp_path)
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["rank-00000.log", "rank-00001.log"]
    assert "step 3/3  loss" in ended.words


def test_unknown_fault_is_rejected_before_any_rank_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown fault 'melt'"):
        launch(small_config(), RunOptions(out=tmp_path, fault="melt:rank=1"))
    assert not (tmp_path / "logs").exists()


def test_job_of_two_ranks_completes_under_torchrun(tmp_path: Path) -> None:
    config = small_config(num_steps=3, dp=2)
    ended = start_job(config, tmp_path, under_torchrun=2).finish()
    assert ended.status == 0, ended.words
    assert len(ended.losses) == 3


@pytest.mark.long
def test_ranks_end_when_torchrun_is_killed(tmp_path: Path) -> None:
    with endless_job(tmp_path, under_torchrun=2) as (job, pids):
        assert len(pids) == 2
        job.process.kill()
        until(lambda: not any(alive(pid) for pid in pids), what="ranks gone")


@pytest.mark.long
def test_torchrun_with_a_wrong_number_of_processes_is_rejected(tmp_path: Path) -> None:
    ended = start_job(small_config(dp=4), tmp_path, under_torchrun=2).finish()
    assert ended.status != 0
    assert "the job has 2 processes, but the grid has 4 ranks" in ended.words


@pytest.mark.long
def test_ranks_under_torchrun_end_with_status_65_after_a_step_that_is_not_finite(tmp_path: Path) -> None:
    config = small_config(num_steps=8, dp=2)
    job = start_job(config, tmp_path, under_torchrun=2, fault="nan:rank=1,step=2", checkpoints=tmp_path / "checkpoints")
    ended = job.finish()
    assert ended.status == 1
    assert f"exitcode  : {NOT_FINITE} " in ended.words
