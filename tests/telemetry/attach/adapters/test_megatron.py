"""Calls of Megatron-LM and events of Megatron-Bridge become steps, stages and microbatches."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from telemetry.stages import Stage
from tests.telemetry.attach.adapters.attached_process import attached
from tests.telemetry.attach.adapters.framework_ranks import NUM_RANKS, SLOW_RANK, needs, script
from tests.telemetry.attach.adapters.framework_ranks import train as train_ranks
from tests.telemetry.recording import Recorded

FIRST_STEP, STEPS, MICROBATCHES = 7, 3, 3


class Schedules(ModuleType):
    """``megatron/core/pipeline_parallel/schedules.py``: its functions call each other by their names in the module."""

    def __init__(self) -> None:
        super().__init__("megatron.core.pipeline_parallel.schedules")

        def forward_step(
            step: Any, data: Any, model: nn.Module, *, current_microbatch: int, vp_stage: int | None
        ) -> Any:
            return step(data, model)

        def backward_step(received: Any, output: torch.Tensor, gradient: Any, config: Any) -> None:
            engine, ones = torch.autograd.Variable._execution_engine, torch.ones_like(output)
            engine.run_backward((output,), (ones,), False, False, (), allow_unreachable=True, accumulate_grad=True)

        vars(self).update(forward_step=forward_step, backward_step=backward_step)

    def forward_backward(self, step: Any, data: Any, model: nn.Module, *, backward: bool = True) -> None:
        """All forwards, and then all backwards: a pipeline of many stages."""
        outputs = [
            self.forward_step(step, data, model, current_microbatch=number, vp_stage=None)
            for number in range(MICROBATCHES)
        ]
        for output in outputs if backward else ():
            self.backward_step(None, output, None, None)


class TrainingLoop(ModuleType):
    """``megatron/training/training.py``."""

    def __init__(self, schedules: Schedules, folder: Path) -> None:
        super().__init__("megatron.training.training")
        model = nn.Linear(16, 1)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def step_of(data: torch.Tensor, model: nn.Module) -> torch.Tensor:
            return model(data).square().mean()

        def train_step(step: Any, data: Any, model: Any, optimizer: Any, *, iteration: int) -> tuple[Any, ...]:
            schedules.forward_backward(step, data, model)
            optimizer.step()
            optimizer.zero_grad()
            return {}, 0, False, False, 0, 0.25, None, 0

        def evaluate(step: Any, data: Any, model: Any) -> None:
            with torch.no_grad():
                schedules.forward_backward(step, data, model, backward=False)

        def save_checkpoint_and_time(iteration: int, model: nn.Module) -> None:
            torch.save(model.state_dict(), folder / "model.pt")

        vars(self).update(train_step=train_step, evaluate=evaluate, save_checkpoint_and_time=save_checkpoint_and_time)
        self.parts = step_of, torch.ones(4, 16), model
        self.optimizer = optimizer

    def train(self) -> None:
        for iteration in range(FIRST_STEP, FIRST_STEP + STEPS):
            self.train_step(*self.parts, self.optimizer, iteration=iteration)
        self.evaluate(*self.parts)
        self.save_checkpoint_and_time(FIRST_STEP + STEPS, self.parts[-1])


def train(folder: Path) -> None:
    schedules = Schedules()
    loop = TrainingLoop(schedules, folder)
    sys.modules.update({module.__name__: module for module in (schedules, loop)})
    other = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    other.step()  # the process becomes a rank
    loop.train()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("megatron")
    return attached(folder / "spool", lambda: train(folder))


def numbers(found: Recorded, stage: Stage, field: str = "step") -> list[int]:
    return found.spans[found.spans["stage"] == stage][field].tolist()


def test_steps_have_the_iteration_numbers_of_megatron(found: Recorded) -> None:
    steps = list(range(FIRST_STEP, FIRST_STEP + STEPS))
    assert numbers(found, Stage.STEP)[-STEPS:] == steps
    assert numbers(found, Stage.OPTIMIZER)[-STEPS:] == steps
    assert [value for name, value in found.samples if name == "gradient-norm"] == [0.25] * STEPS


def test_forwards_and_backwards_have_their_microbatch_numbers(found: Recorded) -> None:
    microbatches = list(range(MICROBATCHES))
    assert numbers(found, Stage.BACKWARD_COMPUTE, "microbatch") == microbatches * STEPS
    with_loss = [*microbatches, microbatches[-1]]
    assert numbers(found, Stage.FORWARD_COMPUTE, "microbatch") == with_loss * STEPS


def test_an_evaluation_and_a_checkpoint_are_one_span_each(found: Recorded) -> None:
    assert len(numbers(found, Stage.EVALUATION)) == 1
    assert len(numbers(found, Stage.CHECKPOINT_WRITE)) == 1
    assert "attach-error" not in dict(found.marks)


def with_callback(folder: Path) -> None:
    """The events of ``megatron/bridge/training/train.py``."""
    callbacks = ModuleType("megatron.bridge.training.callbacks")
    vars(callbacks)["Callback"] = object
    packages = ("megatron", "megatron.bridge", "megatron.bridge.training")
    sys.modules.update({name: ModuleType(name) for name in packages} | {callbacks.__name__: callbacks})
    bridge = ModuleType("megatron.bridge.training.train")
    vars(bridge)["save_checkpoint_and_time"] = lambda: None
    sys.modules[bridge.__name__] = bridge
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=0, world_size=1)

    from rankscope.adapters import MegatronBridgeCallback  # noqa: PLC0415

    callback = MegatronBridgeCallback()
    context = SimpleNamespace(state=SimpleNamespace(train_state=SimpleNamespace(step=FIRST_STEP)), grad_norm=None)
    callback.on_train_start(context)
    for number in range(FIRST_STEP, FIRST_STEP + STEPS):
        context.state.train_state.step, context.grad_norm = number, None
        callback.on_train_step_start(context)
        context.grad_norm = 0.25
        callback.on_train_step_end(context)
    callback.on_eval_start(context)
    callback.on_eval_end(context)
    bridge.save_checkpoint_and_time()


def test_megatron_bridge_events_are_recorded_as_steps_and_stages(tmp_path: Path) -> None:
    found = attached(tmp_path / "spool", lambda: with_callback(tmp_path))
    assert found.stages == ["step"] * STEPS + ["evaluation", "checkpoint-write"]
    assert numbers(found, Stage.STEP) == list(range(FIRST_STEP, FIRST_STEP + STEPS))
    assert found.samples == [("gradient-norm", 0.25)] * STEPS


# Real schedules.

JOB = script("megatron_job")
REAL_STEPS, REAL_MICROBATCHES = 12, 4


@pytest.mark.gloo
@needs("megatron.core")
@pytest.mark.parametrize("options", [[], ["pipeline"]])
def test_real_megatron_schedules_record_microbatches_with_bit_identical_losses(
    options: list[str], tmp_path: Path
) -> None:
    plain = train_ranks(JOB, tmp_path / "plain", *options)
    trained = train_ranks(JOB, tmp_path / "attached", *options, RANKSCOPE="1")
    assert trained.losses == plain.losses
    microbatches = list(range(REAL_MICROBATCHES)) * REAL_STEPS
    for rank in range(NUM_RANKS):
        assert not trained.problems(rank)
        assert trained.steps_of(Stage.STEP, rank) == list(range(REAL_STEPS))
        found = trained.recorded(rank)
        assert numbers(found, Stage.BACKWARD_COMPUTE, "microbatch") == microbatches
        assert set(numbers(found, Stage.FORWARD_COMPUTE, "microbatch")) == set(microbatches)
    assert trained.suspects() == []


@pytest.mark.gloo
@pytest.mark.long
@needs("megatron.core")
def test_slow_rank_of_a_megatron_job_is_the_only_suspect(tmp_path: Path) -> None:
    trained = train_ranks(JOB, tmp_path / "slow", slow=True, RANKSCOPE="1")
    assert trained.suspects() == [[SLOW_RANK]]
