"""`rankscope views`: options of its commands."""

from dataclasses import dataclass
from typing import Annotated

import typer

from ui.cli.commands.command import DEFAULT, DefaultCommand, RunByDefault, add_command
from ui.cli.commands.runs import ByOption
from ui.cli.commands.shared import DEFAULT_STORE, JsonOption, StoreOption

RunOption = Annotated[str, typer.Option("--run", help="Run of the view. Default: all runs.", show_default=False)]
OnlyRunOption = Annotated[
    str, typer.Option("--run", help="Show the views of this run, and the views for all runs.", show_default=False)
]
NameArgument = Annotated[str, typer.Argument(help="Name of the view.")]
AddressArgument = Annotated[str, typer.Argument(help="Address of a page of the dashboard, or its part from ? on.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewsOptions:
    """List the saved views of the dashboard."""

    store: StoreOption = DEFAULT_STORE
    run: OnlyRunOption = ""
    json: JsonOption = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveOptions:
    """Save a page of the dashboard under a name. Needs the write token of the collector."""

    name: NameArgument
    address: AddressArgument
    run: RunOption = ""
    store: StoreOption = DEFAULT_STORE
    by: ByOption = ""
    json: JsonOption = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOptions:
    """Remove a saved view. Needs the write token of the collector."""

    name: NameArgument
    run: RunOption = ""
    store: StoreOption = DEFAULT_STORE
    by: ByOption = ""
    json: JsonOption = False


views_app = typer.Typer(cls=RunByDefault, help="List the saved views of the dashboard.", no_args_is_help=False)
add_command(views_app, DEFAULT, ViewsOptions, "ui.cli.views:views", cls=DefaultCommand)
add_command(views_app, "save", SaveOptions, "ui.cli.views:save")
add_command(views_app, "remove", RemoveOptions, "ui.cli.views:remove")
