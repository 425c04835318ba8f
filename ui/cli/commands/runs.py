"""`rankscope runs`: options of its commands."""

from dataclasses import dataclass
from typing import Annotated

import typer

from ui.cli.commands.command import DEFAULT, DefaultCommand, RunByDefault, add_command
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
TagOption = Annotated[str, typer.Option("--tag", help="Only runs with this tag.", show_default=False)]
NamedRun = Annotated[str, typer.Argument(help="Name of the run.")]
TagsArgument = Annotated[list[str] | None, typer.Argument(help="Tags to add: one word each.", show_default=False)]
RemoveOption = Annotated[
    list[str] | None, typer.Option("--remove", metavar="TAG", help="Tag to remove. Repeatable.", show_default=False)
]
NoteArgument = Annotated[str, typer.Argument(help="Text of the note.")]
ByOption = Annotated[str, typer.Option(help="Your name. Default: the name of this user.", show_default=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOptions:
    """List the stored runs, the newest first."""

    store: StoreOption = DEFAULT_STORE
    tag: TagOption = ""
    limit: LimitOption = None
    json: JsonOption = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TagOptions:
    """Add tags to a run, or remove them. Needs the write token of the collector."""

    run: NamedRun
    tags: TagsArgument = None
    remove: RemoveOption = None
    store: StoreOption = DEFAULT_STORE
    by: ByOption = ""
    json: JsonOption = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteOptions:
    """Write a note about a run. Needs the write token of the collector."""

    run: NamedRun
    text: NoteArgument
    store: StoreOption = DEFAULT_STORE
    by: ByOption = ""
    json: JsonOption = False


runs_app = typer.Typer(cls=RunByDefault, help="List the stored runs, the newest first.", no_args_is_help=False)
add_command(runs_app, DEFAULT, RunsOptions, "ui.cli.runs:runs", cls=DefaultCommand)
add_command(runs_app, "tag", TagOptions, "ui.cli.run_annotations:tag")
add_command(runs_app, "note", NoteOptions, "ui.cli.run_annotations:note")
