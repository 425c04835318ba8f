"""`rankscope demo`: options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ui.cli.commands.command import command
from ui.cli.commands.shared import JsonOption

FAULTS = (
    "none; "
    "slow with rank=, factor=; "
    "hang with rank=, step=, before=, how= (wait, spin, gil or stop); "
    "die with rank=, step=, before=, how= (kill, exit or raise); "
    "data-stall with rank=, step=, seconds=; "
    "skip with rank=, step=, stage=; "
    "shape with rank=, step=, stage=, sizes= (half or double); "
    "gc with rank=. "
    "Example: hang:rank=5,step=8,how=gil"
)
"""Every kind of fault, with the possible values of its settings."""
FaultOption = Annotated[str, typer.Option(metavar="KIND:SETTINGS", help=f"Fault to inject. Kinds: {FAULTS}.")]
ExitOption = Annotated[bool, typer.Option("--exit", help="End after the findings. Do not keep the dashboard open.")]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", help="Folder for rank files, store, logs and ground truth.", show_default=False),
]
StepsOption = Annotated[int, typer.Option(help="Steps to train.", min=1)]
RecipeOption = Annotated[str, typer.Option(help="What to train; see `rankscope train --help`.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Train eight ranks on real text with one slow rank, and find that rank."""

    fault: FaultOption = "slow:rank=5,factor=1.4"
    steps: StepsOption = 30
    recipe: RecipeOption = "tiny_cpu"
    folder: OutOption = None
    exit: ExitOption = False
    json: JsonOption = False


demo = command(DemoOptions, "ui.cli.demo:demo")
