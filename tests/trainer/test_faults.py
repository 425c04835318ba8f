"""Injected faults in real ranks: the specified fault happens, and only to its rank.

The short test run kills one rank here. ``tests/scenarios/test_hang.py`` has ranks that stop or skip a collective.
"""

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from telemetry.record.reader import find_rank_dirs
from telemetry.record.state_page import LiveState, read_state
from telemetry.stages import Stage
from tests.deadline import until
from tests.trainer.jobs import alive, rank_log, run_job, small_config, start_job
from tests.trainer.recorded import of_stage, spans_of

pytestmark = pytest.mark.gloo


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("kill", "rank 1 was killed by SIGKILL"),
        pytest.param("exit", "rank 1 ended with status 13", marks=pytest.mark.long),
        pytest.param("raise", "rank 1 ended with", marks=pytest.mark.long),
    ],
)
def test_dead_rank_ends_the_job_and_is_named_in_the_error(how: str, words: str, tmp_path: Path) -> None:
    job = start_job(small_config(num_steps=50, dp=2), tmp_path, fault=f"die:rank=1,step=3,how={how}")
    ended = job.finish()
    assert ended.status == 1
    assert words in ended.words
    assert len(ended.losses) == 3


def fired(out: Path) -> dict[str, Any]:
    """The record that the rank at fault writes when its fault begins. Empty before."""
    path = out / "fired.json"
    return json.loads(path.read_text()) if path.exists() and path.stat().st_size else {}


def live_states(out: Path) -> list[LiveState]:
    """The live states of all ranks, in rank order."""
    return [read_state(folder) for folder in find_rank_dirs(out / "spool")]


def waits_in(state: LiveState) -> set[tuple[str, int]]:
    """Stage and sequence number of the operations that a rank has issued and waits for."""
    return {(one.stage.label, one.issued) for one in state.operations if one.stage and one.issued > one.completed}


@pytest.mark.long
@pytest.mark.parametrize("how", ["wait", "spin", "gil", "stop"])
def test_hung_rank_stalls_the_job_and_sigterm_still_ends_it(how: str, tmp_path: Path) -> None:
    job = start_job(small_config(num_steps=50, dp=2), tmp_path, fault=f"hang:rank=1,step=3,how={how}")
    until(lambda: fired(tmp_path), seconds=60, what="the hang")
    assert (fired(tmp_path)["rank"], fired(tmp_path)["step"]) == (1, 3)
    pids = job.rank_pids()
    job.process.send_signal(signal.SIGTERM)
    ended = job.finish()
    assert ended.status == 128 + signal.SIGTERM
    assert len(ended.losses) == 3
    assert not any(alive(pid) for pid in pids)


@pytest.mark.parametrize(
    ("before", "axis"),
    [
        ("forward-send", "pp"),
        ("grads-reduce-scatter", "dp"),
        ("tp-all-gather", "tp"),
        ("params-all-gather", "dp"),
        ("tp-reduce-scatter", "tp"),
    ],
)
@pytest.mark.long
def test_die_fault_kills_the_rank_before_the_given_collective(before: str, axis: str, tmp_path: Path) -> None:
    config = small_config(num_steps=50, **{axis: 2})
    ended = start_job(config, tmp_path, fault=f"die:rank=0,step=1,before={before}").finish()
    assert "rank 0 was killed by SIGKILL" in ended.words
    assert (fired(tmp_path)["stage"], fired(tmp_path)["step"]) == (before, 1)
    assert len(ended.losses) <= 1


@pytest.mark.long
def test_hang_before_data_load_keeps_the_rank_in_the_data_load_stage(tmp_path: Path) -> None:
    job = start_job(small_config(num_steps=50, dp=2), tmp_path, fault="hang:rank=1,step=3,before=data-load")
    until(lambda: fired(tmp_path), seconds=60, what="the hang")
    assert live_states(tmp_path)[1].stage == Stage.DATA_LOAD
    job.process.send_signal(signal.SIGTERM)
    assert len(job.finish().losses) == 3


@pytest.mark.long
def test_skipped_collective_leaves_the_two_ranks_in_different_collectives(tmp_path: Path) -> None:
    job = start_job(small_config(num_steps=50, tp=2), tmp_path, fault="skip:rank=1,step=3,stage=tp-all-gather")
    until(lambda: fired(tmp_path), seconds=60, what="the fault")
    until(lambda: all(waits_in(state) for state in live_states(tmp_path)), what="both ranks waiting")
    (behind,), (ahead,) = waits_in(live_states(tmp_path)[0]), waits_in(live_states(tmp_path)[1])
    assert (behind[0], ahead[0]) == ("tp-all-gather", "tp-reduce-scatter")
    assert behind[1] == ahead[1]
    job.process.send_signal(signal.SIGTERM)
    assert len(job.finish().losses) == 3


@pytest.mark.parametrize(("sizes", "aborted"), [("half", 1), ("double", 0)])
@pytest.mark.long
def test_wrong_shape_in_a_collective_aborts_a_rank_that_logs_the_size_mismatch(
    sizes: str, aborted: int, tmp_path: Path
) -> None:
    fault = f"shape:rank=1,step=3,stage=tp-all-gather,sizes={sizes}"
    ended = start_job(small_config(num_steps=50, tp=2), tmp_path, fault=fault).finish()
    assert f"rank {aborted} was killed by SIGABRT" in ended.words
    assert "doesn't match expected size" in rank_log(tmp_path, aborted)


@pytest.mark.long
def test_data_stall_makes_the_data_load_of_its_step_the_longest(tmp_path: Path) -> None:
    run_job(small_config(num_steps=6, dp=2), tmp_path, fault="data-stall:rank=1,step=4,seconds=2")
    loads = of_stage(spans_of(tmp_path)[1], Stage.DATA_LOAD)
    assert loads["duration_ns"][4] >= 2_000_000_000
    assert np.argmax(loads["duration_ns"]) == 4


@pytest.mark.long
def test_slow_and_gc_faults_do_not_change_the_loss(tmp_path: Path) -> None:
    config = small_config(num_steps=4, dp=2)
    specs = ("none", "slow:rank=1,factor=1.5", "gc:rank=1,every=1,objects=1000")
    losses = [run_job(config, tmp_path / spec, fault=spec).losses for spec in specs]
    assert losses[0] == losses[1] == losses[2]


@pytest.mark.long
def test_job_writes_the_injected_fault_into_truth_json(tmp_path: Path) -> None:
    run_job(small_config(num_steps=1, dp=2), tmp_path, fault="slow:rank=1,factor=1.5")
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert (truth["kind"], truth["rank"], truth["factor"]) == ("slow", 1, 1.5)
