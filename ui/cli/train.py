"""`rankscope train`: train a recipe, every rank traced."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from telemetry.process.parent_death import end_with_torchrun
from telemetry.run_names import checked_run_name
from trainer.config import RunOptions, TrainConfig
from trainer.faults.inject import parse_fault
from trainer.recipes import recipe_named

RecipeOption = Annotated[str, typer.Option(help="tiny_cpu (eight ranks on the CPU), one_gpu, megascale_175b.")]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Text file, folder of text, or .bin of uint16 tokens; Python's sources when left out.",
        show_default=False,
    ),
]
CollectorOption = Annotated[
    str | None, typer.Option(envvar="RANKSCOPE_COLLECTOR", help="Ship spans there, by an agent beside the ranks.")
]
FaultOption = Annotated[str, typer.Option(help="A fault to put in, e.g. slow:rank=5,factor=1.4.")]
StepsOption = Annotated[int | None, typer.Option(min=1, help="Steps; the recipe's when left out.", show_default=False)]
RunOption = Annotated[str | None, typer.Option(help="Name of the run; made from recipe and time when left out.")]
OutOption = Annotated[Path, typer.Option(help="Folder for logs, ground truth and rank files.")]
DegreeOption = Annotated[int | None, typer.Option(min=1, help="Degree of the grid; the recipe's when left out.")]
PeakOption = Annotated[float | None, typer.Option(help="Dense peak of one device in TFLOP/s, for MFU.")]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        help="Seconds after which an operation between ranks fails: more than a link may flap; torch's own when "
        "left out.",
        show_default=False,
    ),
]
TelemetryOption = Annotated[bool, typer.Option("--telemetry/--no-telemetry", help="Record spans.")]


def train(
    recipe: RecipeOption = "tiny_cpu",
    data: DataOption = None,
    steps: StepsOption = None,
    dp: DegreeOption = None,
    pp: DegreeOption = None,
    tp: DegreeOption = None,
    seed: Annotated[int, typer.Option(help="Same seed, same loss.")] = 0,
    peak_tflops: PeakOption = None,
    collective_timeout: TimeoutOption = None,
    run: RunOption = None,
    out: OutOption = Path("rankscope-out/train"),
    collector: CollectorOption = None,
    fault: FaultOption = "none",
    telemetry: TelemetryOption = True,
) -> None:
    """Train a recipe. Starts its own ranks on one machine, or takes its place under torchrun."""
    end_with_torchrun()
    config = _configured(recipe_named(recipe), data, steps, {"dp": dp, "pp": pp, "tp": tp})
    config = replace(config, seed=seed, peak_tflops=peak_tflops, collective_timeout_s=collective_timeout)
    parse_fault(fault, config.parallel.topology, num_steps=config.num_steps)
    out.mkdir(parents=True, exist_ok=True)
    from trainer.run import launch  # noqa: PLC0415 - torch is an optional extra, and takes seconds to import

    run_id = None if run is None else checked_run_name(run)
    options = RunOptions(out=out.resolve(), run_id=run_id, fault=fault, collector=collector, telemetry=telemetry)
    raise typer.Exit(launch(config, options))


def _configured(
    config: TrainConfig, data: Path | None, steps: int | None, degrees: dict[str, int | None]
) -> TrainConfig:
    """The recipe with what the command line changes."""
    chosen = {axis: degree for axis, degree in degrees.items() if degree is not None}
    return replace(
        config,
        parallel=replace(config.parallel, **chosen),
        data=replace(config.data, path=data),
        num_steps=steps or config.num_steps,
    )
