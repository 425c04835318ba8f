"""`rankscope demo`: options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ui.cli.commands.command import command
from ui.cli.commands.shared import JsonOption

FAULT_KINDS = ("slow", "hang", "die", "data-stall", "gc", "skip", "shape", "nan")
"""The kinds of ``trainer.faults.inject``. They are repeated here, because that module takes long to load."""
FaultOption = Annotated[
    str,
    typer.Option(
        metavar="KIND:SETTINGS",
        help=f"Fault to inject, such as hang:rank=5,step=8. Kinds: none, {', '.join(FAULT_KINDS)}. "
        "docs/guides/simulate.md describes the kinds and their settings.",
    ),
]
ExitOption = Annotated[bool, typer.Option("--exit", help="End after the findings. Do not keep the dashboard open.")]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Folder for rank files, store, logs and ground truth. Default: rankscope-out/demo-TIME.",
        show_default=False,
    ),
]
StepsOption = Annotated[int, typer.Option(help="Steps to train.", min=1)]
MicrobatchesOption = Annotated[
    int | None, typer.Option(min=1, help="Microbatches in a step. Default: the recipe's.", show_default=False)
]
RecipeOption = Annotated[str, typer.Option(help="Recipe to train; see `rankscope train --help`.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Train eight ranks on real text with one slow rank, and find that rank."""

    fault: FaultOption = "slow:rank=5,factor=1.4"
    steps: StepsOption = 30
    recipe: RecipeOption = "tiny_cpu"
    microbatches: MicrobatchesOption = None
    folder: OutOption = None
    exit: ExitOption = False
    json: JsonOption = False


demo = command(DemoOptions, "ui.cli.demo:demo")
