"""Calls of DeepSpeed's engine become steps, checkpoints and samples. Real jobs keep bit-identical losses."""

import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from telemetry.stages import Stage
from tests.telemetry.attach.adapters.attached_process import attached
from tests.telemetry.attach.adapters.framework_ranks import NUM_RANKS, SLOW_RANK, needs, script
from tests.telemetry.attach.adapters.framework_ranks import train as train_ranks
from tests.telemetry.recording import Recorded

ACCUMULATED = 2
FIRST_STEP = 40
SKIPPED = FIRST_STEP + 2


class DeepSpeedEngine(nn.Module):
    """The methods of DeepSpeed's engine that its loop calls, as ``deepspeed/runtime/engine.py`` orders them."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(16, 1)
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=1e-3)
        self.global_steps = self.micro_steps = 0
        self._global_grad_norm: Any = None
        self.monitor = MonitorMaster()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.module(rows)

    def backward(self, loss: torch.Tensor) -> None:
        loss.backward()

    def get_lr(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def _take_model_step(self, lr_kwargs: object) -> None:
        if self.global_steps != SKIPPED:
            self.optimizer.step()
        self.optimizer.zero_grad()
        self._global_grad_norm = 0.5
        self.global_steps += 1

    def step(self, lr_kwargs: object = None) -> None:
        if (self.micro_steps + 1) % ACCUMULATED == 0:
            self._take_model_step(lr_kwargs)
            self.monitor.write_events([("Train/Samples/train_loss", 2.5, 64), ("Train/Samples/loss_scale", 8.0, 64)])
        self.micro_steps += 1

    def load_checkpoint(self, folder: str, tag: str | None = None) -> tuple[str, dict[str, Any]]:
        self.global_steps = FIRST_STEP
        return folder, {}

    def save_checkpoint(self, folder: str, tag: str | None = None) -> bool:
        for name in ("model", "optimizer"):
            torch.save(self.module.state_dict(), Path(folder) / f"{name}.pt")
        return True

    def save_16bit_model(self, folder: str) -> bool:
        return self.save_checkpoint(folder)


class MonitorMaster:
    def write_events(self, event_list: list[tuple[str, Any, int]]) -> None:
        """No monitor is on."""


def import_deepspeed() -> None:
    """Import a fake deepspeed package with the classes above."""
    engine, monitor = ModuleType("deepspeed.runtime.engine"), ModuleType("deepspeed.monitor.monitor")
    vars(engine)["DeepSpeedEngine"] = DeepSpeedEngine
    vars(monitor)["MonitorMaster"] = MonitorMaster
    package = ModuleType("deepspeed")
    vars(package)["__version__"] = "0.19.8"
    sys.modules.update({module.__name__: module for module in (package, engine, monitor)})


def train(folder: Path, num_steps: int) -> None:
    """One step, then a checkpoint is loaded and ``num_steps`` follow."""
    import_deepspeed()
    engine = DeepSpeedEngine()
    for number in range(num_steps + 1):
        for _ in range(ACCUMULATED):
            engine.backward(engine(torch.ones(4, 16)).square().mean())
            engine.step()
        if number == 0:
            engine.load_checkpoint(str(folder))
    engine.save_checkpoint(str(folder))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("deepspeed")
    return attached(folder / "spool", lambda: train(folder, 5))


def steps_of(found: Recorded, stage: Stage) -> list[int]:
    return found.spans[found.spans["stage"] == stage]["step"].tolist()


def test_steps_have_the_engine_step_numbers_and_skipped_steps_are_counted(found: Recorded) -> None:
    loaded = list(range(FIRST_STEP, FIRST_STEP + 5))
    assert steps_of(found, Stage.STEP) == [0, *loaded]
    assert steps_of(found, Stage.OPTIMIZER) == [0, *(step for step in loaded if step != SKIPPED)]
    assert steps_of(found, Stage.BACKWARD_COMPUTE) == [step for step in loaded for _ in range(ACCUMULATED)]


def test_deepspeed_checkpoint_is_recorded_as_one_span(found: Recorded) -> None:
    assert steps_of(found, Stage.CHECKPOINT_WRITE) == [FIRST_STEP + 4]


def test_learning_rate_gradient_norm_and_monitor_events_are_recorded_as_samples(found: Recorded) -> None:
    assert {
        ("learning-rate", 1e-3),
        ("gradient-norm", 0.5),
        ("loss", 2.5),
        ("loss-scale", 8.0),
    } == set(found.samples)


def test_deepspeed_adapter_is_named_in_a_mark_and_has_no_errors(found: Recorded) -> None:
    names = dict(found.marks)
    assert names["adapter"] == "deepspeed 0.19.8"
    assert "attach-error" not in names


# A real DeepSpeed.

JOB = script("deepspeed_job")
REAL_STEPS, REAL_ACCUMULATED = 16, 2
on_cpu = partial(train_ranks, JOB, DS_ACCELERATOR="cpu")


@pytest.mark.gloo
@needs("deepspeed")
def test_real_deepspeed_engine_has_exact_steps_and_its_slow_rank_is_the_only_suspect(tmp_path: Path) -> None:
    trained = on_cpu(tmp_path / "slow", slow=True, RANKSCOPE="1", SLOW_PRODUCTS="100")
    for rank in range(NUM_RANKS):
        assert not trained.problems(rank)
        assert trained.steps_of(Stage.STEP, rank) == list(range(REAL_STEPS))
        assert trained.steps_of(Stage.EVALUATION, rank) == [REAL_STEPS // 2 - 1]
        assert trained.steps_of(Stage.CHECKPOINT_WRITE, rank) == [REAL_STEPS - 1]
        counts = trained.counts(rank)
        assert counts["backward-compute"] == counts["data-load"] == REAL_STEPS * REAL_ACCUMULATED
        assert counts["optimizer"] == REAL_STEPS
    assert not trained.overlaps()
    for rank in range(NUM_RANKS):
        assert {name for name, _ in trained.recorded(rank).samples} >= {"learning-rate", "gradient-norm"}
    assert trained.suspects() == [[SLOW_RANK]]


@pytest.mark.gloo
@pytest.mark.long
@needs("deepspeed")
def test_real_deepspeed_losses_are_bit_identical_and_steps_continue_after_a_checkpoint(tmp_path: Path) -> None:
    plain = on_cpu(tmp_path / "plain")
    trained = on_cpu(tmp_path / "attached", RANKSCOPE="1")
    assert trained.losses == plain.losses
    assert len(plain.losses[0]) == REAL_STEPS * REAL_ACCUMULATED
    assert trained.suspects() == []
    again = on_cpu(tmp_path / "again", str(trained.folder / "out"), RANKSCOPE="1")
    assert again.steps_of(Stage.STEP) == list(range(REAL_STEPS, 2 * REAL_STEPS))
