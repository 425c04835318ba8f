"""Replaced functions of torch work as before, also with pickle and torch.compile."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from telemetry.attach.optimizers import has_closure, steps_done
from tests.telemetry.attach.attached_process import attached, train
from tests.telemetry.recording import recorded

SINGLE = {"WORLD_SIZE": "1"}


def _import_early() -> None:
    """Modules that a training may import before it becomes a rank."""
    import torch._dynamo  # noqa: PLC0415
    import torch.distributed.checkpoint  # noqa: PLC0415
    import torch.distributed.pipelining  # noqa: F401, PLC0415


def _pickled() -> dict[str, bool]:
    """Whether each function is replaced, and pickle restores the same object."""
    train()  # becomes a rank
    checkpoint = torch.distributed.checkpoint
    functions = [torch.save, torch.autograd.backward, checkpoint.save, checkpoint.async_save, nn.Module.__call__]
    return {
        each.__qualname__: pickle.loads(pickle.dumps(each)) is each and hasattr(each, "replaced_by_rankscope")
        for each in functions
    }


def test_pickle_restores_the_replaced_functions(tmp_path: Path) -> None:
    found = attached(tmp_path, _import_early, _pickled, **SINGLE).result
    assert found == dict.fromkeys(["save", "backward", "async_save", "Module.__call__"], True)


class Named(nn.Module):
    """Its argument names are also argument names of rankscope functions."""

    def forward(self, module: torch.Tensor, stage: float, begin: float) -> torch.Tensor:
        return module * stage * begin


def _call_by_name() -> float:
    train()
    return float(Named()(module=torch.ones(()), stage=2.0, begin=3.0))


def test_modules_may_have_arguments_of_any_name(tmp_path: Path) -> None:
    ended = attached(tmp_path, work=_call_by_name, **SINGLE)
    assert ended.result == 6.0
    assert "attach-error" not in {name for name, _ in recorded(ended.spool).marks}


def _save_and_pickle() -> None:
    train()
    pickle.dumps([torch.ones(2), nn.Linear(2, 2)])  # as all_gather_object does
    torch.save(torch.ones(2), "/dev/null")


def test_pickled_tensors_are_not_recorded_as_checkpoints(tmp_path: Path) -> None:
    ended = attached(tmp_path, work=_save_and_pickle, **SINGLE)
    assert recorded(ended.spool).stages.count("checkpoint-write") == 1


def _run_pipeline() -> list[float]:
    """A schedule that passes the arguments of a microbatch by name."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe  # noqa: PLC0415

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    train()  # the recording begins
    stage = PipelineStage(nn.Linear(4, 4, bias=False), 0, 1, torch.device("cpu"))
    plain = stage.forward_one_chunk

    def forward_one_chunk(chunk: int, args: Any, kwargs: Any, **more: Any) -> Any:
        return plain(fwd_chunk_id=chunk, args=args, kwargs=kwargs, **more)

    stage.forward_one_chunk = forward_one_chunk
    schedule = ScheduleGPipe(stage, 2, loss_fn=lambda output, target: (output - target).square().mean())
    losses: list[torch.Tensor] = []
    schedule.step(torch.ones(4, 4), target=torch.zeros(4, 4), losses=losses)
    dist.destroy_process_group()
    return [loss.item() for loss in losses]


def test_pipeline_schedule_may_pass_microbatch_arguments_by_name(tmp_path: Path) -> None:
    ended = attached(tmp_path, _import_early, _run_pipeline)
    assert len(ended.result) == 2
    spans = recorded(ended.spool).spans
    assert sorted(spans["microbatch"][spans["chunk"] == 0].tolist()) == [0, 0, 1, 1]


def _shortcut_is_kept() -> bool:
    train()
    known: Any = torch._dynamo.utils.unpatched_nn_module_call
    return known is nn.Module.__call__ and torch._dynamo.variables.nn_module.unpatched_nn_module_call is known


def test_torch_compile_recognizes_the_replaced_module_call(tmp_path: Path) -> None:
    assert attached(tmp_path, _import_early, _shortcut_is_kept, **SINGLE).result


@pytest.mark.parametrize(
    ("args", "kwargs", "has"),
    [
        ((), {}, False),
        ((None,), {}, False),
        ((), {"closure": None}, False),
        ((), {"grad_scaler": object()}, False),
        ((float,), {}, True),
        ((), {"closure": float}, True),
    ],
)
def test_optimizer_closure_is_detected_and_none_counts_as_no_closure(args: Any, kwargs: Any, has: bool) -> None:
    assert has_closure(args, kwargs) is has


class Sharded(torch.Tensor):
    """A tensor whose value may need other ranks, such as a DTensor."""


@pytest.mark.parametrize(
    ("step", "done"), [(torch.tensor(5.0), 5), (7, 7), (torch.tensor(5.0).as_subclass(Sharded), None)]
)
def test_optimizer_step_count_is_read_unless_it_is_a_sharded_tensor(step: Any, done: int | None) -> None:
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.AdamW([weight])
    optimizer.state[weight]["step"] = step
    assert steps_done(optimizer) == done
