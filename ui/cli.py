"""The `rankscope` command: one short file a subcommand, loaded when it is asked for."""

import os
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from diagnose.commands.options import progress
from telemetry.errors import RankscopeError
from telemetry.private_files import private_umask

COMMANDS = {
    "demo": "ui.commands.demo:demo",
    "train": "ui.commands.train:train",
    "collect": "ui.commands.collect:collect",
    "migrate": "ui.commands.migrate:migrate",
    "agent": "ui.commands.agent:agent",
    "ui": "ui.commands.ui:ui",
    "runs": "ui.commands.runs:runs",
    "doctor": "ui.commands.doctor:doctor",
    "import": "ui.commands.import_run:import_run",
    "simulate": "diagnose.commands.simulate:simulate_run",
    "diagnose": "diagnose.commands.group:diagnose_app",
    "alerts": "diagnose.commands.alerts:alerts_app",
    "export": "ui.commands.export:export_app",
}
"""Name -> module and the function or group of functions in it. All of them together take seconds to load."""
PASS_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
"""The agent reads its arguments itself: it also runs where this command is not installed."""


class LoadedWhenAsked(Mapping[str, Any]):
    """Commands by name."""

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = COMMANDS[name].partition(":")
        command = getattr(import_module(module), attribute)
        shelf = typer.Typer()
        if isinstance(command, typer.Typer):
            shelf.add_typer(command, name=name)
        else:
            shelf.command(name, context_settings=PASS_ON if name == "agent" else None)(command)
        return typer.main.get_group(shelf).commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Commands(TyperGroup):
    """A group that does not know its commands before they are asked for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = LoadedWhenAsked()  # type: ignore[assignment]


app = typer.Typer(
    name="rankscope",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def rankscope() -> None:
    """See every rank of a training job; when it slows or stalls, name the rank, the host and the cause."""


def main() -> None:
    """Run the command line. A user's error is one message with a hint, never a traceback."""
    try:
        os.umask(private_umask())
        app()
    except RankscopeError as error:
        progress.print("error:", style="bold red", end=" ")
        progress.print(str(error), markup=False, highlight=False)
        sys.exit(error.exit_status)
    except BrokenPipeError:
        sys.exit(0)


if __name__ == "__main__":
    main()
