"""`rankscope profile`: options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from telemetry.profiles import MAX_RANKS, MAX_SECONDS, MAX_STEPS, USUAL_SECONDS, USUAL_STEPS
from ui.cli.commands.command import command
from ui.cli.commands.shared import DEFAULT_STORE, AttemptOption, JsonOption, RunArgument, StoreOption

RanksOption = Annotated[
    str,
    typer.Option(
        help=f"Ranks to profile, such as 3,7, at most {MAX_RANKS}. Default: the ranks of the newest finding, and for "
        "each a peer that does the same work.",
        metavar="LIST",
        show_default=False,
    ),
]
StepsOption = Annotated[int, typer.Option(min=1, max=MAX_STEPS, help="Steps to profile.")]
SecondsOption = Annotated[
    int,
    typer.Option(
        min=1,
        max=MAX_SECONDS,
        help="Time limit in seconds: first for the start of a step, then again for the end of the profiled steps.",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", help="Folder to write the traces to, one file for each rank.", show_default=False),
]
ListOption = Annotated[bool, typer.Option("--list", help="List the profiles of the run. Does not request a profile.")]
GetOption = Annotated[
    str,
    typer.Option(
        "--get",
        metavar="ID",
        help="Write the traces of this stored profile to --out. Does not request a profile.",
        show_default=False,
    ),
]
LocalSpoolOption = Annotated[
    Path | None,
    typer.Option(
        help="Profile ranks of this machine through the rank files in this folder. Needs no collector and no agent.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """Profile ranks of a running job with torch's profiler, without a restart.

    The ranks become slower while they are profiled, and pause when the trace is written: see docs/guides/profile.md.
    A request to a collector needs its RANKSCOPE_TOKEN.
    """

    run: RunArgument = None
    ranks: RanksOption = ""
    steps: StepsOption = USUAL_STEPS
    seconds: SecondsOption = USUAL_SECONDS
    out_folder: OutOption = None
    list: ListOption = False
    get: GetOption = ""
    store: StoreOption = DEFAULT_STORE
    attempt: AttemptOption = None
    spool: LocalSpoolOption = None
    json: JsonOption = False


profile = command(ProfileOptions, "ui.cli.profile:profile")
