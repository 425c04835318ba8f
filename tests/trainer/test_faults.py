"""Each fault, in real ranks: what was asked for happens, to that rank alone.

In every run one rank dies here; one that stops and one that skips a collective are in ``tests/scenarios/test_hang.py``.
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
def test_a_rank_that_dies_takes_the_job_down_and_is_named(how: str, words: str, tmp_path: Path) -> None:
    job = start_job(small_config(num_steps=50, dp=2), tmp_path, fault=f"die:rank=1,step=3,how={how}")
    ended = job.finish()
    assert ended.status == 1
    assert words in ended.words
    assert len(ended.losses) == 3


def fired(out: Path) -> dict[str, Any]:
    """What the rank at fault put down as its fault began; nothing before."""
    path = out / "fired.json"
    return json.loads(path.read_text()) if path.exists() and path.stat().st_size else {}


def live_states(out: Path) -> list[LiveState]:
    """The state pages, by rank."""
    return [read_state(folder) for folder in find_rank_dirs(out / "spool")]


def waits_in(state: LiveState) -> set[tuple[str, int]]:
    """Stage and number of what a rank has issued and waits for."""
    return {(one.stage.label, one.issued) for one in state.operations if one.stage and one.issued > one.completed}


@pytest.mark.long
@pytest.mark.parametrize("how", ["wait", "spin", "gil", "stop"])
def test_a_rank_that_hangs_stops_the_job_and_can_still_be_ended(how: str, tmp_path: Path) -> None:
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
def test_a_rank_can_be_stopped_before_a_collective(before: str, axis: str, tmp_path: Path) -> None:
    config = small_config(num_steps=50, **{axis: 2})
    ended = start_job(config, tmp_path, fault=f"die:rank=0,step=1,before={before}").finish()
    assert "rank 0 was killed by SIGKILL" in ended.words
    assert (fired(tmp_path)["stage"], fired(tmp_path)["step"]) == (before, 1)
    assert len(ended.losses) <= 1


@pytest.mark.long
def test_data_that_never_comes_keeps_its_rank_in_the_loading(tmp_path: Path) -> None:
    job = start_job(small_config(num_steps=50, dp=2), tmp_path, fault="hang:rank=1,step=3,before=data-load")
    until(lambda: fired(tmp_path), seconds=60, what="the hang")
    assert live_states(tmp_path)[1].stage == Stage.DATA_LOAD
    job.process.send_signal(signal.SIGTERM)
    assert len(job.finish().losses) == 3


@pytest.mark.long
def test_a_rank_that_skips_a_collective_leaves_its_peer_in_another_one(tmp_path: Path) -> None:
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
def test_a_rank_that_gives_a_collective_another_shape_breaks_the_job(sizes: str, aborted: int, tmp_path: Path) -> None:
    fault = f"shape:rank=1,step=3,stage=tp-all-gather,sizes={sizes}"
    ended = start_job(small_config(num_steps=50, tp=2), tmp_path, fault=fault).finish()
    assert f"rank {aborted} was killed by SIGABRT" in ended.words
    assert "doesn't match expected size" in rank_log(tmp_path, aborted)


@pytest.mark.long
def test_stalled_data_keeps_its_rank_waiting_in_that_step(tmp_path: Path) -> None:
    run_job(small_config(num_steps=6, dp=2), tmp_path, fault="data-stall:rank=1,step=4,seconds=2")
    loads = of_stage(spans_of(tmp_path)[1], Stage.DATA_LOAD)
    assert loads["duration_ns"][4] >= 2_000_000_000
    assert np.argmax(loads["duration_ns"]) == 4


@pytest.mark.long
def test_a_fault_does_not_change_the_loss(tmp_path: Path) -> None:
    config = small_config(num_steps=4, dp=2)
    specs = ("none", "slow:rank=1,factor=1.5", "gc:rank=1,every=1,objects=1000")
    losses = [run_job(config, tmp_path / spec, fault=spec).losses for spec in specs]
    assert losses[0] == losses[1] == losses[2]


@pytest.mark.long
def test_the_truth_stands_beside_the_run(tmp_path: Path) -> None:
    run_job(small_config(num_steps=1, dp=2), tmp_path, fault="slow:rank=1,factor=1.5")
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert (truth["kind"], truth["rank"], truth["factor"]) == ("slow", 1, 1.5)
