"""After any failure, ``import torch`` and the training continue, and one line reports the cause."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import distributed_c10d

import telemetry
from telemetry.process.child_process import HOME
from telemetry.record.reader import find_rank_dirs
from tests.telemetry.attach.attached_process import attached, train
from tests.telemetry.recording import recorded

LOOK_ONCE = """
import sys
before = set(sys.modules)
import rankscope_attach
rankscope_attach.attach()
print(*sorted(set(sys.modules) - before))
"""
HIDDEN = """
import rankscope_attach
rankscope_attach.attach()
print("went on")
"""


@pytest.fixture(scope="module")
def plain() -> list[float]:
    return train()


def test_attach_imports_no_module_when_rankscope_is_not_requested() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RANKSCOPE")}
    environment["PYTHONPATH"] = str(HOME)
    command = [sys.executable, "-c", LOOK_ONCE]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["rankscope_attach"]


@pytest.mark.parametrize("name", ["telemetry.py", "telemetry/__init__.py"])
def test_user_file_that_shadows_the_telemetry_package_is_not_run(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("raise SystemExit('a program of the user')\n")
    environment = {**os.environ, "RANKSCOPE": "1", "PYTHONPATH": f"{tmp_path}:{HOME}"}
    command = [sys.executable, "-c", HIDDEN]
    answer = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert answer.stdout == "went on\n"
    assert answer.stderr.startswith(f"rankscope: not attached: the module telemetry is '{tmp_path / name}'")
    assert len(answer.stderr.splitlines()) == 1


def test_a_single_rank_is_traced_from_its_first_optimizer_step(tmp_path: Path, plain: list[float]) -> None:
    ended = attached(tmp_path, WORLD_SIZE="1", RANK="0", LOCAL_RANK="0")
    assert ended.result == plain
    assert len(ended.lines) <= 2  # the run, and torch's worker server
    found = recorded(ended.spool)
    assert found.stages.count("optimizer") == len(plain)
    assert found.stages.count("backward-compute") == len(plain) - 1


def _raises(*_: object, **__: object) -> Any:
    raise OSError("broken on purpose")


def _break_training() -> None:
    """Break every method that follows the loop."""
    training = importlib.import_module("telemetry.attach.training").Training
    for name in ("begin_load", "begin_forward", "begin_backward", "begin_optimizer", "end_optimizer"):
        setattr(training, name, _raises)


def _break_ends() -> None:
    training = importlib.import_module("telemetry.attach.training").Training
    for name in ("end_load", "end_call", "end"):
        setattr(training, name, _raises)
    importlib.import_module("telemetry.attach.steps").Steps._close = _raises  # type: ignore[attr-defined]


def _break_the_seams() -> None:
    """Break the seams, including those of modules that are imported later."""
    importlib.import_module("torch.distributed.checkpoint")
    importlib.import_module("telemetry.attach.seams").replace = _raises  # type: ignore[attr-defined]


def _forget_the_helper() -> None:
    del distributed_c10d._new_process_group_helper


@pytest.mark.parametrize(
    ("breaks", "variables", "line"),
    [
        (lambda: None, {"RANKSCOPE_SPOOL": "/proc/none"}, "not recording"),
        (lambda: None, {"RANKSCOPE": "banana"}, "not attached: RANKSCOPE is 'banana'"),
        (lambda: None, {"RANKSCOPE_COLLECTOR": "banana"}, "not attached: RANKSCOPE_COLLECTOR is not the address"),
        (lambda: None, {"LOCAL_RANK": "banana"}, "not attached: LOCAL_RANK is 'banana'"),
        (lambda: None, {"RANKSCOPE_SEGMENTS": "banana"}, "not recording: RANKSCOPE_SEGMENTS is 'banana'"),
        (lambda: None, {"HOME": "/proc/none", "XDG_CACHE_HOME": "/proc/none"}, "recording run one"),
        (lambda: None, {"RANKSCOPE": "0"}, ""),
        (lambda: None, {"WORLD_SIZE": "4", "RANK": "2"}, ""),
        (_break_training, {}, "the training loop cannot be followed completely: OSError"),
        (_break_ends, {}, "the training loop cannot be followed completely: OSError"),
        (_break_the_seams, {}, "cannot record forward, backward, optimizer, data-load, checkpoint with torch"),
        (_forget_the_helper, {}, "not attached: this version of torch"),
    ],
)
def test_losses_are_bit_identical_after_a_failure_and_one_line_reports_the_cause(
    tmp_path: Path, plain: list[float], breaks: Callable[[], Any], variables: dict[str, str], line: str
) -> None:
    ended = attached(tmp_path, breaks, **{"RANKSCOPE_COLLECTOR": "", **variables})
    assert ended.result == plain
    ours = [text for text in ended.lines if text.startswith("rankscope: ") and "recording run one" not in text]
    expected = [line] if line and line != "recording run one" else []
    assert len(ours) == len(expected), ended.lines
    assert all(text.startswith(f"rankscope: {line}") for text in ours)


class BrokenStream:
    """A program may replace standard error with such a stream."""

    def write(self, text: str) -> None:
        raise RuntimeError(text)


def _break_standard_error() -> None:
    sys.stderr = BrokenStream()  # type: ignore[assignment]


def test_losses_are_bit_identical_when_standard_error_raises(tmp_path: Path, plain: list[float]) -> None:
    assert attached(tmp_path, _break_standard_error, RANKSCOPE="banana").result == plain
    assert attached(tmp_path, _break_standard_error).result == plain


def _start_own(**options: Any) -> None:
    """The script starts its own session: before the training, or (``late``) during it."""
    if options.pop("late"):
        plain = torch.optim.Optimizer.zero_grad

        def zero_grad(self: torch.optim.Optimizer) -> None:
            plain(self)
            if telemetry.record.session.current_session().attached:
                telemetry.start("own", agent=False)

        torch.optim.Optimizer.zero_grad = zero_grad  # type: ignore[assignment]
    else:
        telemetry.start("own", agent=False)


@pytest.mark.parametrize("late", [False, True])
def test_session_started_by_the_user_prevents_or_replaces_the_attached_session(
    tmp_path: Path, plain: list[float], late: bool
) -> None:
    ended = attached(tmp_path, lambda: _start_own(late=late), WORLD_SIZE="1")
    assert ended.result == plain
    assert not any("start() was called twice" in line for line in ended.lines)
    runs = [folder.parts[-3] for folder in find_rank_dirs(ended.spool)]
    assert runs == (["one", "own"] if late else ["own"])
