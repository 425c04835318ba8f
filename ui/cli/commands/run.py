"""`rankscope run`: options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ui.cli.commands.command import command
from ui.cli.commands.shared import collector_address

CommandArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="COMMAND", help="Command to run, such as `torchrun --nproc-per-node 2 train.py`.", show_default=False
    ),
]
CollectorOption = Annotated[
    str | None,
    typer.Option(
        envvar="RANKSCOPE_COLLECTOR",
        help="Address of the collector, http://HOST:PORT. Default: a collector with an embedded store runs as long as "
        "the command.",
        callback=collector_address,
        show_default=False,
    ),
]
RunOption = Annotated[
    str | None,
    typer.Option(
        envvar="RANKSCOPE_RUN", help="Name of the run. Default: a name with the current time.", show_default=False
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Folder for rank files, store and log of the collector. Default: rankscope-out/RUN.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Run a training command with tracing on, without code changes. Returns the exit status of the command.

    rankscope must be installed in the Python environment of the command.
    """

    command: CommandArgument
    run: RunOption = None
    collector: CollectorOption = None
    folder: OutOption = None


run = command(RunOptions, "ui.cli.run:run")
