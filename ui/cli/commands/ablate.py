"""`rankscope ablate`: options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ui.cli.commands.command import command
from ui.cli.commands.demo import MicrobatchesOption
from ui.cli.commands.shared import JsonOption
from ui.cli.commands.train import (
    CollectorOption,
    DataOption,
    DataParallelOption,
    DelayOption,
    PeakOption,
    PipelineParallelOption,
    RecipeOption,
    TensorParallelOption,
)

TechniquesOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,NAME",
        help="Techniques to add, in this order. Default: all that the recipe can use. "
        "docs/guides/efficiency.md describes them.",
        show_default=False,
    ),
]
StepsOption = Annotated[int, typer.Option(min=4, help="Steps of each training. The first quarter is not measured.")]
RoundsOption = Annotated[
    int, typer.Option(min=1, help="Number of rounds. Each round trains every row of the table once.")
]
NameOption = Annotated[str | None, typer.Option(help="Name of the ablation. Default: ablate-TIME.", show_default=False)]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Folder for the table, rank files, store and logs. Default: rankscope-out/NAME.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AblateOptions:
    """Train a recipe several times, with one technique more each time, and print what each technique gains."""

    recipe: RecipeOption = "tiny_cpu"
    techniques: TechniquesOption = None
    steps: StepsOption = 16
    rounds: RoundsOption = 3
    data: DataOption = None
    dp: DataParallelOption = None
    pp: PipelineParallelOption = None
    tp: TensorParallelOption = None
    microbatches: MicrobatchesOption = None
    comm_delay_ms: DelayOption = 0.0
    peak_tflops: PeakOption = None
    name: NameOption = None
    folder: OutOption = None
    collector: CollectorOption = None
    json: JsonOption = False


ablate = command(AblateOptions, "ui.cli.ablate:ablate")
