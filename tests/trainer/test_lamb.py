"""The LAMB optimizer equals its definition, also on shards."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from tests.trainer.jobs import Ended, run_job, small_config
from trainer.checkpoint.folder import complete_name
from trainer.compute import ComputeConfig
from trainer.config import CheckpointConfig, OptimConfig, TrainConfig
from trainer.optim.lamb import EPSILON, ShardedLamb
from trainer.optim.schedule import learning_rate_at

CONFIG = OptimConfig(optimizer="lamb", learning_rate=0.01, num_warmup_steps=2)
NUM_STEPS = 4
TOLERANCE = 1e-6
"""Relative, of losses and of all parameters as one vector. Another grid adds in another order."""


def test_lamb_step_equals_the_algorithm_of_the_paper() -> None:
    module = nn.Sequential(nn.Linear(8, 4, bias=False), nn.LayerNorm(4, bias=False)).double()
    expected = {name: value.detach().clone() for name, value in module.named_parameters()}
    moments = {name: (torch.zeros_like(value), torch.zeros_like(value)) for name, value in expected.items()}
    lamb = ShardedLamb([module], CONFIG)
    for step in range(5):
        for name, parameter in module.named_parameters():
            parameter.grad = torch.randn_like(parameter)
            expected[name], moments[name] = plain_step(expected[name], parameter.grad, moments[name], step)
        lamb.take_gradients()
        lamb.step(step)
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(parameter.detach(), expected[name])


def plain_step(
    weight: Tensor, gradient: Tensor, moments: tuple[Tensor, Tensor], step: int
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """One layer, one step (arXiv 1904.00962, algorithm 2)."""
    first = CONFIG.beta1 * moments[0] + (1 - CONFIG.beta1) * gradient
    second = CONFIG.beta2 * moments[1] + (1 - CONFIG.beta2) * gradient**2
    update = first / (1 - CONFIG.beta1 ** (step + 1)) / ((second / (1 - CONFIG.beta2 ** (step + 1))).sqrt() + EPSILON)
    ratio = 1.0
    if weight.ndim > 1:
        update = update + CONFIG.weight_decay * weight
        ratio = float(weight.norm() / update.norm())
    return weight - learning_rate_at(step, CONFIG) * ratio * update, (first, second)


def test_lamb_updates_a_layer_of_zeros_like_adam() -> None:
    module = nn.Linear(4, 2, bias=False)
    nn.init.zeros_(module.weight)
    lamb = ShardedLamb([module], CONFIG)
    module.weight.grad = torch.ones_like(module.weight)
    lamb.take_gradients()
    lamb.step(0)
    rate = learning_rate_at(0, CONFIG)
    torch.testing.assert_close(module.weight.detach(), torch.full((2, 4), -rate))


def job_config(**parallel: int) -> TrainConfig:
    """Two layers: one for each pipeline stage."""
    plain = small_config(num_steps=NUM_STEPS, global_microbatches=4, **parallel)
    return replace(
        plain,
        model=replace(plain.model, num_layers=2, fused_projection=True),
        optim=CONFIG,
        checkpoint=CheckpointConfig(every=NUM_STEPS),
    )


def parameters_of(root: Path, scratch: Path) -> Tensor:
    """All parameters of the last checkpoint, as one vector."""
    dcp_to_torch_save(root / complete_name(NUM_STEPS), scratch)
    tensors = torch.load(scratch)
    return torch.cat([tensors[name].flatten().double() for name in sorted(tensors) if name.startswith("model.")])


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """One process without parallelism."""
    out = tmp_path_factory.mktemp("alone")
    return run_job(job_config(), out, checkpoints=out / "checkpoints")


@pytest.mark.gloo
@pytest.mark.parametrize("pp", [1, pytest.param(2, marks=pytest.mark.long)])
def test_lamb_on_a_grid_gives_the_losses_and_parameters_of_one_process(pp: int, alone: Ended, tmp_path: Path) -> None:
    """With a fused projection and recomputation, so that their shards are tested too."""
    grid = replace(job_config(dp=2, pp=pp, tp=2), compute=ComputeConfig(recompute="selective"))
    spread = run_job(grid, tmp_path, checkpoints=tmp_path / "checkpoints")
    assert spread.losses == pytest.approx(alone.losses, rel=TOLERANCE)
    one, other = (parameters_of(job.out / "checkpoints", tmp_path / "whole.pt") for job in (alone, spread))
    assert (one - other).norm() <= TOLERANCE * one.norm()


@pytest.mark.gloo
def test_resumed_lamb_job_has_the_losses_of_an_uninterrupted_job(alone: Ended, tmp_path: Path) -> None:
    config = replace(job_config(), checkpoint=CheckpointConfig(every=2))
    half = run_job(replace(config, num_steps=NUM_STEPS // 2), tmp_path / "half", checkpoints=tmp_path / "root")
    rest = run_job(config, tmp_path / "rest", checkpoints=tmp_path / "root")
    assert half.losses + rest.losses == alone.losses
