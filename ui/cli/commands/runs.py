"""`rankscope runs`: options."""

from dataclasses import dataclass
from typing import Annotated

import typer

from ui.cli.commands.command import command
from ui.cli.commands.shared import DEFAULT_STORE, JsonOption, StoreOption

NEWEST = 50
LimitOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        help=f"Print the newest N runs. 0: all runs. Default: {NEWEST}; with --json all.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOptions:
    """List the stored runs, the newest first."""

    store: StoreOption = DEFAULT_STORE
    limit: LimitOption = None
    json: JsonOption = False


runs = command(RunsOptions, "ui.cli.runs:runs")
