from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import pytest

from telemetry.errors import UsageError
from tests.each_case import each_case
from trainer.checkpoint.claim import check_same_training, facts_of
from trainer.checkpoint.folder import About
from trainer.compute import ComputeConfig
from trainer.config import DataConfig, ModelConfig, OptimConfig, ParallelConfig, TrainConfig
from trainer.recipes import RECIPES, recipe_named
from ui.cli.commands.train import TrainOptions
from ui.cli.train import with_techniques

FLOAT8 = ComputeConfig(precision="float8")


@each_case(
    ("make", "words"),
    [
        (lambda: ModelConfig(hidden_size=100, num_heads=3), "num_heads 3"),
        (lambda: ModelConfig(hidden_size=12, num_heads=4), "even head size"),
        (lambda: ModelConfig(sequence_length=128, window=200), "window is 200"),
        (lambda: ModelConfig(block="serial", fused_projection=True), "a serial block has no fused projection"),
        (lambda: ModelConfig(num_layers=0), "num_layers is 0"),
        (lambda: ParallelConfig(dp=0), "dp is 0"),
        (lambda: ParallelConfig(pp=8, num_microbatches=4), "are too few for a pipeline of 8 stages"),
        (lambda: ParallelConfig(num_chunks=2), "needs a pipeline"),
        (lambda: ParallelConfig(pp=2, num_chunks=2, num_microbatches=3), "num_microbatches 3"),
        (lambda: DataConfig(path=Path("/nowhere/at/all")), "no data at /nowhere/at/all"),
        (lambda: DataConfig(microbatch_size=0), "microbatch_size is 0"),
        (lambda: OptimConfig(learning_rate=0.0), "learning_rate"),
        (lambda: OptimConfig(learning_rate=nan), "learning_rate is nan"),
        (lambda: OptimConfig(beta2=1.0), "betas"),
        (lambda: OptimConfig(weight_decay=-1.0), "negative"),
        (lambda: TrainConfig(num_steps=0), "num_steps is 0"),
        (lambda: TrainConfig(seed=-1), "seed is -1"),
        (lambda: TrainConfig(peak_tflops=-1.0), "peak_tflops"),
        (lambda: TrainConfig(peak_tflops=inf), "peak_tflops is inf"),
        (lambda: TrainConfig(parallel=ParallelConfig(pp=3)), "num_layers 4 is not divisible by pipeline stages 3"),
        (lambda: TrainConfig(parallel=ParallelConfig(tp=8)), "num_heads 4 is not divisible by tp 8"),
        (
            lambda: TrainConfig(compute=FLOAT8, parallel=ParallelConfig(tp=2)),
            "float8 does not work with tensor parallelism",
        ),
        (
            lambda: TrainConfig(compute=FLOAT8, model=ModelConfig(hidden_size=40)),
            "hidden_size 40 is not divisible by the unit",
        ),
        (
            lambda: TrainConfig(compute=ComputeConfig(compile=True), parallel=ParallelConfig(tp=2)),
            "compiled blocks do not work with tensor parallelism",
        ),
        (lambda: recipe_named("enormous"), "unknown recipe 'enormous'"),
    ],
)
def test_invalid_config_is_rejected_with_a_hint(make: Callable[[], object], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        make()
    assert words in caught.value.message
    assert caught.value.hint


@each_case("name", RECIPES)
def test_every_recipe_is_valid_and_named_after_its_function(name: str) -> None:
    assert recipe_named(name).recipe == name


def test_recipe_name_accepts_dashes_for_underscores() -> None:
    assert recipe_named("tiny-cpu") == RECIPES["tiny_cpu"]()


def test_train_options_override_the_techniques_of_a_recipe() -> None:
    recipe = recipe_named("tiny_cpu")
    assert with_techniques(recipe, TrainOptions()) == recipe
    changed = with_techniques(
        recipe,
        TrainOptions(
            block="serial",
            window=0,
            precision="bfloat16",
            recompute="full",
            optimizer="lamb",
            learning_rate=0.1,
        ),
    )
    assert (changed.model.block, changed.model.window) == ("serial", 0)
    assert changed.compute == ComputeConfig(precision="bfloat16", recompute="full")
    assert (changed.optim.optimizer, changed.optim.learning_rate) == ("lamb", 0.1)
    assert changed.parallel == recipe.parallel
    assert with_techniques(recipe_named("one_gpu"), TrainOptions(compile=True)).compute.compile


def test_old_checkpoint_without_newer_settings_loads_only_with_their_default_values() -> None:
    config = TrainConfig()
    facts = {
        name: fact for name, fact in facts_of(config).items() if name not in ("block", "fused_projection", "optimizer")
    }
    about = About(step=1, run_id="run", attempt=0, world_size=1, training=facts)
    check_same_training(about, config, Path("checkpoints"))
    for other in (
        replace(config, model=replace(config.model, fused_projection=True)),
        replace(config, optim=replace(config.optim, optimizer="lamb")),
    ):
        with pytest.raises(UsageError, match="of another training"):
            check_same_training(about, other, Path("checkpoints"))
