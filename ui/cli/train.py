"""The work of `rankscope train`: train a recipe with every rank traced."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import typer

from telemetry.errors import UsageError
from telemetry.labels import label_meta
from telemetry.process.child_process import end_with_torchrun
from telemetry.process.quick_imports import quick_imports
from telemetry.run_names import checked_run_name
from trainer.config import CheckpointConfig, OverlapConfig, TrainConfig
from trainer.faults.inject import parse_fault
from trainer.output import make_out
from trainer.recipes import recipe_named
from trainer.run_options import RunOptions
from ui.cli.commands.train import DEFAULT_OUT, TrainOptions
from ui.cli.commands.train import train as train_command


def train(options: TrainOptions) -> int:
    end_with_torchrun()
    config = config_of(options)
    parse_fault(options.fault, config.parallel.topology, num_steps=config.num_steps)
    labels = tuple(options.labels or ())
    label_meta(labels)
    place = make_out(options.out, usual=DEFAULT_OUT)
    with quick_imports():
        from trainer.run import launch  # noqa: PLC0415 - after the checks: torch takes seconds to import

    run = RunOptions(
        out=place,
        run_id=None if options.run is None else checked_run_name(options.run),
        fault=options.fault,
        comm_delay_s=options.comm_delay_ms / 1e3,
        collector=options.collector,
        telemetry=options.telemetry,
        labels=labels,
        checkpoints=None if options.checkpoints is None else options.checkpoints.resolve(),
    )
    return launch(config, run)


def config_of(options: TrainOptions) -> TrainConfig:
    """The whole configuration: the recipe with what the options change.

    Raises:
        UsageError: an option cannot work, or options do not fit together.
    """
    parallel = {
        "dp": options.dp,
        "pp": options.pp,
        "tp": options.tp,
        "num_microbatches": options.microbatches,
        "num_chunks": options.chunks,
        "schedule": options.schedule,
    }
    data = {"path": options.data, "shared_loader": options.shared_loader}
    config = replace(
        configured(recipe_named(options.recipe), data, options.steps, parallel),
        seed=options.seed,
        peak_tflops=options.peak_tflops,
        collective_timeout_s=options.collective_timeout,
        checkpoint=_checkpoint_config(options),
        overlap=OverlapConfig.along(options.overlap),
    )
    if options.comm_delay_ms and (config.device != "cpu" or not options.telemetry):
        raise UsageError(
            "--comm-delay-ms needs a recipe for CPUs, and does not work with --no-telemetry",
            hint="omit --comm-delay-ms, or change the other options",
        )
    return with_techniques(config, options)


def options_from(words: Sequence[str]) -> TrainOptions:
    """The options that `rankscope train` parses from ``words``."""
    shelf = typer.Typer()
    shelf.command("train")(train_command)
    given = typer.main.get_command(shelf).make_context("train", list(words)).params
    return TrainOptions(**{field.name: given[field.name] for field in fields(TrainOptions)})


def with_techniques(config: TrainConfig, options: TrainOptions) -> TrainConfig:
    """``config`` with the techniques that the command line changes."""
    model = {"block": options.block, "fused_projection": options.fused_projection, "window": options.window}
    compute = {"precision": options.precision, "recompute": options.recompute, "compile": options.compile}
    optim = {"optimizer": options.optimizer, "learning_rate": options.learning_rate}
    return replace(
        config,
        model=replace(config.model, **_given(model)),
        compute=replace(config.compute, **_given(compute)),
        optim=replace(config.optim, **_given(optim)),
    )


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _checkpoint_config(options: TrainOptions) -> CheckpointConfig:
    given = {"checkpoint-every": options.checkpoint_every, "keep": options.keep}
    names = [f"--{name}" for name, value in given.items() if value is not None]
    if names and options.checkpoints is None:
        raise UsageError(f"{' and '.join(names)} without --checkpoints", hint="give a folder: --checkpoints DIR")
    return CheckpointConfig(every=options.checkpoint_every or 0, keep=options.keep or CheckpointConfig().keep)


def configured(
    config: TrainConfig, data: dict[str, Any], steps: int | None, parallel: Mapping[str, int | str | None]
) -> TrainConfig:
    """``config`` with the data, number of steps and parallelism that the command line changes."""
    return replace(
        config,
        parallel=replace(config.parallel, **_given(parallel)),
        data=replace(config.data, **data),
        num_steps=steps or config.num_steps,
    )
