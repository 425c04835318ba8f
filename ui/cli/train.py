"""The work of `rankscope train`: train a recipe with every rank traced."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from telemetry.errors import UsageError
from telemetry.process.child_process import end_with_torchrun
from telemetry.run_names import checked_run_name
from trainer.config import CheckpointConfig, OverlapConfig, RunOptions, TrainConfig
from trainer.faults.inject import parse_fault
from trainer.recipes import recipe_named
from ui.cli.commands.train import TrainOptions


def train(options: TrainOptions) -> int:
    end_with_torchrun()
    parallel = {
        "dp": options.dp,
        "pp": options.pp,
        "tp": options.tp,
        "num_microbatches": options.microbatches,
        "num_chunks": options.chunks,
        "schedule": options.schedule,
    }
    config = replace(
        configured(recipe_named(options.recipe), options.data, options.steps, parallel),
        seed=options.seed,
        peak_tflops=options.peak_tflops,
        collective_timeout_s=options.collective_timeout,
        checkpoint=_checkpoint_config(options),
        overlap=OverlapConfig.along(options.overlap),
    )
    if options.comm_delay_ms and (config.device != "cpu" or not options.telemetry):
        raise UsageError("--comm-delay-ms needs a recipe for CPUs, and telemetry", hint="leave out one of the options")
    parse_fault(options.fault, config.parallel.topology, num_steps=config.num_steps)
    options.out.mkdir(parents=True, exist_ok=True)
    from trainer.run import launch  # noqa: PLC0415 - after the checks: torch takes seconds to import

    run = RunOptions(
        out=options.out.resolve(),
        run_id=None if options.run is None else checked_run_name(options.run),
        fault=options.fault,
        comm_delay_s=options.comm_delay_ms / 1e3,
        collector=options.collector,
        telemetry=options.telemetry,
        checkpoints=None if options.checkpoints is None else options.checkpoints.resolve(),
    )
    return launch(config, run)


def _checkpoint_config(options: TrainOptions) -> CheckpointConfig:
    given = {"checkpoint-every": options.checkpoint_every, "keep": options.keep}
    names = [f"--{name}" for name, value in given.items() if value is not None]
    if names and options.checkpoints is None:
        raise UsageError(f"{' and '.join(names)} without --checkpoints", hint="give a folder: --checkpoints DIR")
    return CheckpointConfig(every=options.checkpoint_every or 0, keep=options.keep or CheckpointConfig().keep)


def configured(
    config: TrainConfig, data: Path | None, steps: int | None, parallel: Mapping[str, int | str | None]
) -> TrainConfig:
    """The recipe with what the command line changes."""
    chosen: dict[str, Any] = {name: value for name, value in parallel.items() if value is not None}
    return replace(
        config,
        parallel=replace(config.parallel, **chosen),
        data=replace(config.data, path=data),
        num_steps=steps or config.num_steps,
    )
