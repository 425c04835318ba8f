"""`rankscope diagnose`, `diagnose hang` and `diagnose whatif`: options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ui.cli.commands.command import DEFAULT, DefaultCommand, Needs, RunByDefault, add_command
from ui.cli.commands.shared import (
    DEFAULT_STORE,
    AttemptOption,
    EveryOption,
    FirstStepOption,
    JsonOption,
    LastStepOption,
    RunArgument,
    SpoolOption,
    StoreOption,
    WatchOption,
)

HangSpoolOption = Annotated[
    Path | None,
    typer.Option(
        help="Read the rank files in this folder, of a running or ended job. Needs no store.", show_default=False
    ),
]
DumpsOption = Annotated[
    Path | None,
    typer.Option(help="Read the PyTorch flight-recorder dumps in this folder, of any job.", show_default=False),
]
LogsOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Read what ranks printed: files, folders, globs, or - for standard input; plain or gzip. Can be repeated.",
        metavar="FILES",
        show_default=False,
    ),
]
RasOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Read NCCL RAS: its address (usually localhost:28028), or two outputs of ncclras (JSON or text) that were "
        "taken some seconds apart.",
        metavar="FILE|HOST:PORT",
        show_default=False,
    ),
]
StacksOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Read Python stacks: files or folders of py-spy, faulthandler or torch's debug server. Can be repeated.",
        metavar="FILES",
        show_default=False,
    ),
]
InspectorOption = Annotated[
    Path | None,
    typer.Option(
        help="Read the files of NCCL Inspector in this folder (JSON lines).", metavar="DIR", show_default=False
    ),
]
WorldSizeOption = Annotated[
    int | None,
    typer.Option(
        help="Number of ranks of the job. Logs, stacks and dumps of gloo seldom contain this number. Without it, a "
        "late rank may not be named, because more ranks may exist.",
        min=1,
        metavar="N",
        show_default=False,
    ),
    Needs(("dumps", "logs", "stacks")),
]
RunOrFiles = Annotated[
    list[str] | None,
    typer.Argument(
        help="Run. Default: the newest one. With --logs or --stacks: more files for that option, so `--logs *.log` "
        "works.",
        metavar="RUN",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnoseOptions:
    """Explain what slows or stalls a run. Prints findings, the worst first. Exit status 1 if there are findings.

    For a job that makes no progress, use `rankscope diagnose hang`.
    """

    run: RunArgument = None
    store: StoreOption = DEFAULT_STORE
    attempt: AttemptOption = None
    first_step: FirstStepOption = None
    last_step: LastStepOption = None
    spool: SpoolOption = None
    json: JsonOption = False
    again: WatchOption = False
    every: EveryOption = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HangOptions:
    """Find the ranks that block a stalled job: in which collective, at which line. Exit status 1 if there are any.

    --dumps, --logs, --ras, --stacks and --inspector read evidence of any job, without a store. Give all evidence
    that you have: the command combines it, and lists contradictions.
    """

    run: RunOrFiles = None
    spool: HangSpoolOption = None
    dumps: DumpsOption = None
    logs: LogsOption = None
    ras: RasOption = None
    stacks: StacksOption = None
    inspector: InspectorOption = None
    world_size: WorldSizeOption = None
    store: StoreOption = DEFAULT_STORE
    attempt: AttemptOption = None
    json: JsonOption = False
    again: WatchOption = False
    every: EveryOption = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatifOptions:
    """Compute the time that slow ranks cost, and what each fix would save. Exit status 1 if there are findings.

    Replays every step as if no rank were slow.
    """

    run: RunArgument = None
    store: StoreOption = DEFAULT_STORE
    attempt: AttemptOption = None
    first_step: FirstStepOption = None
    last_step: LastStepOption = None
    spool: SpoolOption = None
    json: JsonOption = False


diagnose_app = typer.Typer(cls=RunByDefault, help="Explain what slows or stalls a run.", no_args_is_help=False)
add_command(diagnose_app, DEFAULT, DiagnoseOptions, "ui.cli.diagnose:diagnose", cls=DefaultCommand)
add_command(diagnose_app, "hang", HangOptions, "ui.cli.diagnose:hang")
add_command(diagnose_app, "whatif", WhatifOptions, "ui.cli.diagnose:whatif")
