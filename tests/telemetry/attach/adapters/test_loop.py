"""Records of the calls of a framework adapter."""

import multiprocessing
import os
from collections.abc import Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import rankscope
import telemetry
from telemetry.attach.adapters.loop import LOOP, Loop, follow, harmless
from telemetry.attach.own_errors import ATTACH_ERROR, MAX_ERRORS
from telemetry.attach.training import Training
from telemetry.record.recording import RECORDER
from telemetry.record.segments import decode_samples
from telemetry.record.session import current_session
from telemetry.stages import Stage
from tests.telemetry.recording import Recorded, recorded, session

FORKING = multiprocessing.get_context("fork")
LIMIT_S = 60


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    with session(tmp_path):
        yield Loop(RECORDER)


def steps_of(found: Recorded, stage: Stage) -> list[int]:
    """Steps of the spans of one stage."""
    return found.spans[found.spans["stage"] == stage]["step"].tolist()


def test_steps_and_stages_are_recorded_with_their_step_numbers(loop: Loop, tmp_path: Path) -> None:
    for number in (41, 42):
        loop.begin_step(number)
        loop.begin_stage(Stage.FORWARD_COMPUTE, microbatch=3)
        loop.end_stage(Stage.FORWARD_COMPUTE)
        loop.end_step(number)
    found = recorded(tmp_path)
    assert found.stages == ["forward-compute", "step"] * 2
    assert found.spans["step"].tolist() == [41, 41, 42, 42]
    assert found.spans["microbatch"].tolist() == [3, -1] * 2


def test_evaluation_at_the_start_of_a_step_is_recorded_before_that_step(loop: Loop, tmp_path: Path) -> None:
    loop.begin_step(0)
    loop.end_step(0)
    loop.begin_step(1)
    loop.begin_stage(Stage.EVALUATION)
    loop.end_stage(Stage.EVALUATION)
    loop.end_step(1)
    found = recorded(tmp_path)
    assert found.stages == ["step", "evaluation", "step"]
    assert found.spans["step"].tolist() == [0, 0, 1]
    starts, durations = found.spans["start_ns"], found.spans["duration_ns"]
    assert (starts[1:] >= (starts + durations)[:-1]).all()


def test_a_step_that_two_adapters_report_is_recorded_once(loop: Loop, tmp_path: Path) -> None:
    for number in range(2):
        for _ in range(2):
            loop.begin_step(number)
        for _ in range(2):
            loop.end_step(number)
            loop.begin_step(number + 1)
    assert steps_of(recorded(tmp_path), Stage.STEP) == [0, 1]


def test_second_training_continues_the_step_numbers_of_the_first(loop: Loop, tmp_path: Path) -> None:
    for numbers in ((10, 11), (0, 1)):
        for number in numbers:
            loop.begin_step(number)
            loop.end_step(number)
            loop.sample({"loss": number}, step=number)
    found = recorded(tmp_path)
    assert steps_of(found, Stage.STEP) == [10, 11, 12, 13]
    samples = decode_samples(found.records, 0, lambda at_ns: at_ns)
    assert samples["step"].tolist() == [10, 11, 12, 13]


def test_stage_nested_in_the_same_stage_and_failed_stage_are_not_recorded(loop: Loop, tmp_path: Path) -> None:
    for _ in range(2):
        loop.begin_stage(Stage.CHECKPOINT_WRITE)
    loop.end_stage(Stage.CHECKPOINT_WRITE)
    assert recorded(tmp_path).stages == []
    loop.end_stage(Stage.CHECKPOINT_WRITE)
    loop.begin_stage(Stage.EVALUATION)
    loop.end_stage(Stage.EVALUATION, completed=False)
    assert recorded(tmp_path).stages == ["checkpoint-write"]
    assert RECORDER.depth == 0


def test_a_step_that_did_not_complete_is_not_recorded(loop: Loop, tmp_path: Path) -> None:
    loop.begin_step(0)
    loop.end_step(0)
    loop.begin_step(1)
    loop.end_step(1, completed=False)
    telemetry.sample("loss", 2.0)
    found = recorded(tmp_path)
    assert steps_of(found, Stage.STEP) == [0]
    assert RECORDER.step_number == 0
    assert not found.marks


def test_steps_and_stages_left_open_by_an_error_are_not_recorded(loop: Loop, tmp_path: Path) -> None:
    loop.begin_step(0)
    loop.begin_stage(Stage.BACKWARD_COMPUTE)
    loop.begin_step(0)
    loop.begin_stage(Stage.EVALUATION)
    loop.begin_stage(Stage.DATA_LOAD)
    loop.begin_step(5)
    loop.end_stage(Stage.EVALUATION)
    loop.end_step(5)
    assert recorded(tmp_path).stages == ["step"]
    assert RECORDER.depth == 0


def test_open_step_of_a_failed_training_is_recorded_as_a_step_interrupted_mark(loop: Loop, tmp_path: Path) -> None:
    loop.begin_step(0)
    try:
        raise RuntimeError("out of memory")
    except RuntimeError:
        loop.end()
    found = recorded(tmp_path)
    assert [name for name, _ in found.marks] == ["step-interrupted"]
    assert found.stages == []


def test_forward_and_backward_are_inferred_in_adapter_steps_but_not_in_evaluations(loop: Loop, tmp_path: Path) -> None:
    training = Training(RECORDER)

    def compute() -> None:
        for begin in (partial(training.begin_forward, with_grad=True), training.begin_backward):
            if (span := begin()) is not None:
                training.end_call(span, completed=True)

    loop.begin_step(7)
    compute()
    loop.end_step(7)
    loop.begin_step(8)
    loop.begin_stage(Stage.EVALUATION)
    compute()
    loop.end_stage(Stage.EVALUATION)
    found = recorded(tmp_path)
    assert steps_of(found, Stage.BACKWARD_COMPUTE) == [7]
    assert steps_of(found, Stage.FORWARD_COMPUTE) == [7, 7]  # the model and the loss
    assert steps_of(found, Stage.STEP) == [7]


def test_samples_are_renamed_and_values_that_are_not_numbers_are_skipped(loop: Loop, tmp_path: Path) -> None:
    on_device = SimpleNamespace(device=SimpleNamespace(type="cuda"), item=lambda: 1 / 0)
    loop.sample(
        {
            "loss": torch.tensor(2.5, requires_grad=True),
            "grad_norm": np.float32(0.5),
            "eval_loss": 3,
            "epoch": "1",
            "weights": torch.zeros(3),
            "on_device": on_device,
        },
        step=9,
    )
    found = recorded(tmp_path)
    assert found.samples == [("loss", 2.5), ("gradient-norm", 0.5), ("eval-loss", 3.0)]
    assert not found.marks


def test_adapter_stops_recording_steps_after_too_many_errors(
    loop: Loop, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loop.begin_step(0)
    for _ in range(MAX_ERRORS):
        loop.sample(None)  # type: ignore[arg-type]
    loop.begin_step(1)
    loop.end_step(1)
    found = recorded(tmp_path)
    assert found.stages == []
    assert ATTACH_ERROR in [name for name, _ in found.marks]
    assert capfd.readouterr().err.count("cannot be followed completely") == 1


def test_callback_error_is_recorded_as_a_mark_and_not_raised(tmp_path: Path) -> None:
    @harmless
    def on_step_end(state: object) -> None:
        raise AttributeError("this version has another state")

    with session(tmp_path):
        on_step_end(None)
    assert [name for name, _ in recorded(tmp_path).marks] == [ATTACH_ERROR]


def test_adapter_calls_without_a_session_do_nothing() -> None:
    LOOP.begin_step(0)
    LOOP.begin_stage(Stage.EVALUATION)
    LOOP.sample({"loss": 1.0})
    LOOP.end_stage(Stage.EVALUATION)
    LOOP.end_step(0)
    assert RECORDER.depth == 0


def _follow_often(folder: Path, sender: Connection) -> None:
    """Send whether a session records after each call."""
    os.chdir(folder)
    for name in [name for name in os.environ if name.startswith("RANKSCOPE")]:
        del os.environ[name]
    os.environ |= {"RANKSCOPE_SPOOL": "spool", "RANKSCOPE_RUN": "followed"}
    refusing = ({"RANKSCOPE": "0"}, {"RANKSCOPE": "maybe"}, {"RANKSCOPE_DISABLED": "1"})
    for variables in (*refusing, {"RANKSCOPE_DISABLED": ""}):
        os.environ |= {"RANKSCOPE": "", "RANKSCOPE_DISABLED": ""} | variables
        follow("a framework 1.0", 0, 1)
        sender.send(current_session().recording)
    rankscope.stop()
    follow("a framework 1.0", 0, 1)
    sender.send(current_session().recording)


def test_a_session_is_started_once_and_only_if_the_environment_allows_it(tmp_path: Path) -> None:
    receiver, sender = FORKING.Pipe(duplex=False)
    child = FORKING.Process(target=_follow_often, args=(tmp_path, sender))
    child.start()
    child.join(LIMIT_S)
    assert child.exitcode == 0
    assert [receiver.recv() for _ in range(5)] == [False, False, False, True, False]
    assert [path.name for path in tmp_path.glob("spool/*")] == ["followed"]
