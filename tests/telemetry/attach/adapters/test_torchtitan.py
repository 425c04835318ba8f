"""Records of torchtitan's structured logger become steps, stages and samples."""

import logging
import multiprocessing
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest

from rankscope.adapters import register_torchtitan
from telemetry.attach.adapters import torchtitan
from telemetry.attach.adapters.loop import Loop
from telemetry.attach.adapters.torchtitan import STEP_STATE, TorchtitanHandler, see_metrics
from telemetry.attach.own_errors import ATTACH_ERROR
from telemetry.record.recording import RECORDER
from telemetry.record.session import current_session
from tests.telemetry.recording import Recorded, recorded, session

FIRST_STEP = 41
LIMIT_S = 60
OF_A_STEP = ("data-load", "forward-backward", "step")
"""Stages in the order of their ends."""


class Logger:
    """The calls of torchtitan's trainer: ``log_trace_span``, ``log_trace_scalar``, ``set_step``, ``add_step_tag``."""

    def __init__(self) -> None:
        self.logger = logging.Logger("torchtitan.structured_logger", logging.INFO)
        self.step: int | None = None
        self.tags: tuple[str, ...] = ()

    def get_step_tags(self) -> tuple[str, ...]:
        return self.tags

    def write(self, name: str, log_type: str = "event", task: str | None = None, **fields: Any) -> None:
        extra = {"log_type": log_type, "log_type_name": name, "event_name": None, "step": self.step}
        extra |= {"relative_step": None, "value": None, "task_name": task, **fields}
        self.logger.info(f"[step {self.step}] {name}", extra=extra, stacklevel=2)

    @contextmanager
    def span(self, name: str, task: str | None = None) -> Iterator[None]:
        self.write(f"{name}_start", task=task)
        try:
            yield
        except BaseException:
            self.write(f"{name}_error", task=task)
            raise
        finally:
            self.write(f"{name}_end", task=task, value=1.5)

    @contextmanager
    def training_step(self, number: int) -> Iterator[None]:
        self.step, self.tags = number, ()
        with self.span("step"):
            yield

    def train(self, number: int, *, saves: bool = False, evaluates: bool = False) -> None:
        """A step of ``Trainer.train``."""
        with self.training_step(number):
            with self.span("fetching_batch"):
                pass
            self.write("metric_value", "instant", event_name="local_valid_tokens", value=4096)
            with self.span("fwd_bwd"), self.span("post_dataloading_process"):
                pass
            with self.span("optim"):
                pass
            with self.span("checkpoint_save"):
                self.tags = ("checkpoint_save",) if saves else ()
            if evaluates:
                with self.span("eval"):
                    pass


@pytest.fixture
def titan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Logger]:
    logger = Logger()
    monkeypatch.setitem(sys.modules, STEP_STATE, logger)  # type: ignore[arg-type]
    monkeypatch.setattr(torchtitan, "LOOP", Loop(RECORDER))
    with session(tmp_path):
        logger.logger.addHandler(TorchtitanHandler())
        yield logger


def spans_of(found: Recorded) -> list[tuple[int, str]]:
    """Step and stage, in the order of their ends."""
    return list(zip(found.spans["step"].tolist(), found.stages, strict=True))


def test_steps_have_the_numbers_of_torchtitan(titan: Logger, tmp_path: Path) -> None:
    for number in (FIRST_STEP, FIRST_STEP + 1):
        titan.train(number)
    assert spans_of(recorded(tmp_path)) == [
        *[(FIRST_STEP, stage) for stage in OF_A_STEP],
        *[(FIRST_STEP + 1, stage) for stage in OF_A_STEP],
    ]


def test_checkpoint_and_evaluation_are_recorded_after_the_step(titan: Logger, tmp_path: Path) -> None:
    titan.train(FIRST_STEP, saves=True, evaluates=True)
    found = recorded(tmp_path)
    assert found.stages == [*OF_A_STEP, "checkpoint-write", "evaluation"]
    ends = found.spans["start_ns"] + found.spans["duration_ns"]
    assert (found.spans["start_ns"][-2:] >= ends[-3:-1]).all()


def test_step_without_remaining_data_is_not_recorded(titan: Logger, tmp_path: Path) -> None:
    titan.train(FIRST_STEP)
    with titan.training_step(FIRST_STEP + 1):
        try:
            with titan.span("fetching_batch"):
                raise StopIteration
        except StopIteration:
            pass
    assert spans_of(recorded(tmp_path)) == [(FIRST_STEP, stage) for stage in OF_A_STEP]


def test_failed_step_is_not_recorded(titan: Logger, tmp_path: Path) -> None:
    with pytest.raises(ValueError), titan.training_step(FIRST_STEP):  # noqa: PT011
        raise ValueError
    titan.train(FIRST_STEP + 1)
    assert spans_of(recorded(tmp_path)) == [(FIRST_STEP + 1, stage) for stage in OF_A_STEP]


def test_spans_of_other_threads_and_of_tasks_are_not_recorded(titan: Logger, tmp_path: Path) -> None:
    def evaluate() -> None:
        with titan.span("eval"):
            pass

    with titan.training_step(FIRST_STEP):
        other = Thread(target=evaluate)
        other.start()
        other.join()
        with titan.span("fetching_batch", task="Task-1"):
            pass
    assert spans_of(recorded(tmp_path)) == [(FIRST_STEP, "step")]


def test_logged_scalars_are_recorded_as_samples(titan: Logger, tmp_path: Path) -> None:
    titan.train(FIRST_STEP)
    assert recorded(tmp_path).samples == [("local-valid-tokens", 4096.0)]


class BaseLogger:
    """As in torchtitan/components/metrics.py. No other test uses it, so the replaced method is not restored."""

    def log(self, metrics: dict[str, Any], step: int) -> None:
        """Logging is off."""


class LoggerContainer(BaseLogger):
    def __init__(self) -> None:
        self.logged: list[tuple[dict[str, Any], int]] = []

    def log(self, metrics: dict[str, Any], step: int) -> None:
        self.logged.append((metrics, step))


@pytest.fixture
def metrics() -> ModuleType:
    module = ModuleType("torchtitan.components.metrics")
    vars(module).update(BaseLogger=BaseLogger, LoggerContainer=LoggerContainer)
    see_metrics(module)
    return module


def test_logged_metrics_are_recorded_as_samples_of_every_rank(
    metrics: ModuleType, titan: Logger, tmp_path: Path
) -> None:
    logged = {"loss_metrics/global_avg_loss": 2.5, "grad_norm": 0.75, "throughput(tps)": 8192.0, "mfu(%)": 40.0}
    logged |= {"lr/AdamW/0": 1e-3, "lr/AdamW/1": 1e-4}
    container = metrics.LoggerContainer()
    container.log(logged, FIRST_STEP)
    metrics.BaseLogger().log({"loss_metrics/global_avg_loss": -4.0}, FIRST_STEP + 1)  # not the last pipeline stage
    assert container.logged == [(logged, FIRST_STEP)]
    assert dict(recorded(tmp_path).samples) == {
        "loss": 2.5,
        "gradient-norm": 0.75,
        "tokens-per-second": 8192.0,
        "mfu": 0.4,
        "learning-rate": 1e-3,
    }


def test_adapter_error_is_recorded_as_a_mark_and_not_raised_into_torchtitan(titan: Logger, tmp_path: Path) -> None:
    titan.get_step_tags = None  # type: ignore[method-assign,assignment]
    titan.train(FIRST_STEP)
    assert ATTACH_ERROR in [name for name, _ in recorded(tmp_path).marks]


def register_and_train(source: str) -> None:
    logger = Logger()
    register_torchtitan(structured_logger=logger.logger, rank=3, source=source, output_dir="outputs")
    logger.train(FIRST_STEP)


def test_register_torchtitan_starts_a_session_for_the_given_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKSCOPE_SPOOL", str(tmp_path))
    monkeypatch.setenv("WORLD_SIZE", "4")
    child = multiprocessing.get_context("fork").Process(target=register_and_train, args=("training",))
    child.start()
    child.join(LIMIT_S)
    found = recorded(tmp_path, rank=3)
    assert found.reader.identity().topology.world_size == 4
    assert spans_of(found) == [(FIRST_STEP, stage) for stage in OF_A_STEP]
    assert "adapter" in [name for name, _ in found.marks]


@pytest.mark.parametrize(("source", "switch"), [("generator", "1"), ("training", "0")])
def test_no_session_starts_for_a_generator_actor_or_when_rankscope_is_off(
    source: str, switch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKSCOPE_SPOOL", str(tmp_path))
    monkeypatch.setenv("RANKSCOPE", switch)
    register_and_train(source)
    assert not current_session().recording
    assert list(tmp_path.iterdir()) == []
