"""Recipes: functions that return a complete configuration. Change settings of it with ``dataclasses.replace``."""

from collections.abc import Callable
from dataclasses import replace

from telemetry.errors import UsageError
from trainer.compute import ComputeConfig
from trainer.config import DataConfig, ModelConfig, OptimConfig, ParallelConfig, TrainConfig


def tiny_cpu() -> TrainConfig:
    """Eight gloo ranks on two cores, dp2 x pp2 x tp2. A step takes about a second. The loss falls from the first
    steps."""
    return TrainConfig(
        recipe="tiny_cpu",
        model=ModelConfig(num_layers=2, hidden_size=448, num_heads=8, sequence_length=256, window=64),
        parallel=ParallelConfig(dp=2, pp=2, tp=2, num_microbatches=4),
        data=DataConfig(microbatch_size=1),
        num_steps=40,
    )


def deep_cpu() -> TrainConfig:
    """Eight gloo ranks, dp2 x pp2 x tp2, with four small blocks in each pipeline stage. Shows overlap (use
    --comm-delay-ms)."""
    return TrainConfig(
        recipe="deep_cpu",
        model=ModelConfig(num_layers=8, hidden_size=512, num_heads=8, sequence_length=256, window=64),
        parallel=ParallelConfig(dp=2, pp=2, tp=2, num_microbatches=4),
        data=DataConfig(microbatch_size=1),
        num_steps=20,
    )


def tiny_lamb() -> TrainConfig:
    """``tiny_cpu`` with LAMB, four times the batch and a quarter of the steps: the same number of tokens."""
    plain = tiny_cpu()
    return replace(
        plain,
        recipe="tiny_lamb",
        parallel=replace(plain.parallel, num_microbatches=16),
        optim=OptimConfig(optimizer="lamb", learning_rate=2e-2, num_warmup_steps=2, num_decay_steps=250),
        num_steps=10,
    )


def one_gpu() -> TrainConfig:
    """About 0.3 billion parameters on one GPU, without collectives."""
    return TrainConfig(
        recipe="one_gpu",
        model=ModelConfig(num_layers=24, hidden_size=1024, num_heads=16, sequence_length=2048, window=512),
        parallel=ParallelConfig(num_microbatches=4),
        data=DataConfig(microbatch_size=8),
        optim=OptimConfig(learning_rate=3e-4, num_warmup_steps=100, num_decay_steps=10_000),
        device="cuda",
        compute=ComputeConfig(precision="bfloat16"),
        num_steps=200,
    )


def wide_gpu() -> TrainConfig:
    """One block with the hidden size of ``megascale_175b``, 1.8 billion parameters, on one GPU with 80 GB. Its matrix
    products are as wide as those of the whole model, so it shows the MFU that a GPU can reach."""
    plain = one_gpu()
    return replace(
        plain,
        recipe="wide_gpu",
        model=replace(plain.model, num_layers=1, hidden_size=12288, num_heads=96, fused_projection=True),
        optim=replace(plain.optim, learning_rate=1e-4),
        num_steps=50,
    )


def megascale_175b() -> TrainConfig:
    """The 175B model of MegaScale (section 6.1) on 256 GPUs: tp 8, pp 8, six chunks a pipeline rank, batch 768."""
    return TrainConfig(
        recipe="megascale_175b",
        model=ModelConfig(
            num_layers=96, hidden_size=12288, num_heads=128, sequence_length=2048, window=512, vocab_size=64_000
        ),
        parallel=ParallelConfig(dp=4, pp=8, tp=8, num_chunks=6, num_microbatches=192),
        data=DataConfig(microbatch_size=1),
        optim=OptimConfig(learning_rate=1e-4, num_warmup_steps=2_000, num_decay_steps=200_000),
        device="cuda",
        compute=ComputeConfig(precision="bfloat16"),
        num_steps=1_000,
    )


RECIPES: dict[str, Callable[[], TrainConfig]] = {
    recipe.__name__: recipe for recipe in (tiny_cpu, tiny_lamb, deep_cpu, one_gpu, wide_gpu, megascale_175b)
}


def recipe_named(name: str) -> TrainConfig:
    """The recipe called ``name``.

    Raises:
        UsageError: there is no such recipe.
    """
    key = name.replace("-", "_")
    if key not in RECIPES:
        raise UsageError(f"unknown recipe {name!r}", hint=f"use one of {', '.join(RECIPES)}")
    return RECIPES[key]()
