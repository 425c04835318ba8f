"""The `rankscope` command: one short file for each subcommand, imported when that subcommand runs.

exit status     0 nothing found    1 findings    2 wrong use or unreadable input    3 store or collector unreachable
               70 a defect of ours, with a traceback    128 + n ended by signal n    141 the reader of a pipe closed it
"""

import os
import sys
import traceback
from dataclasses import dataclass
from importlib import import_module, metadata
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Subcommand:
    """The place of a subcommand, and its line in the list of commands."""

    target: str
    """Module and the function, or the group of functions, in it."""
    extra: str
    """What to install for it: ``pip install 'rankscope[EXTRA]'``."""
    help: str
    """The first sentence of its own help."""


COMMANDS = {
    "demo": Subcommand(
        target="ui.cli.demo:demo",
        extra="all",
        help="Train eight ranks in 3D on real text with a slow one among them, and name it.",
    ),
    "train": Subcommand(target="ui.cli.train:train", extra="train", help="Train a recipe."),
    "collect": Subcommand(
        target="ui.cli.collect:collect",
        extra="store",
        help="Take in spans, keep them in a store, answer queries.",
    ),
    "migrate": Subcommand(
        target="ui.cli.migrate:migrate", extra="store", help="Make or upgrade the tables of a store."
    ),
    "agent": Subcommand(
        target="ui.cli.agent:agent",
        extra="agent",
        help="Ship rank files until their ranks have ended and everything is acknowledged.",
    ),
    "ui": Subcommand(target="ui.cli.ui:ui", extra="ui", help="Serve the dashboard over a collector or a store."),
    "runs": Subcommand(target="ui.cli.runs:runs", extra="ui", help="List the runs that are stored, newest first."),
    "doctor": Subcommand(target="ui.cli.doctor:doctor", extra="ui", help="Check this machine."),
    "import": Subcommand(
        target="ui.cli.import_run:import_run", extra="ui", help="Store other people's traces as a run."
    ),
    "simulate": Subcommand(
        target="ui.cli.simulate:simulate_run",
        extra="ui",
        help="Simulate a run, and store it as if its ranks had recorded it.",
    ),
    "diagnose": Subcommand(target="ui.cli.group:diagnose_app", extra="ui", help="Explain what slows or stalls a run."),
    "alerts": Subcommand(
        target="ui.cli.alerts:alerts_app",
        extra="ui",
        help="Tell people when something goes wrong, once, and when it is over.",
    ),
    "export": Subcommand(target="ui.cli.export:export_app", extra="ui", help="A run in the form of others."),
}
"""Name -> subcommand. The list of commands needs none of their imports, which take seconds and optional packages."""
INTERRUPTED = 130
PASS_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
"""The agent reads its arguments itself: it also runs where this command is not installed."""


class Commands(TyperGroup):
    """A group that lists its subcommands by name and imports only the one that runs."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {name: TyperCommand(name, help=command.help) for name, command in COMMANDS.items()}

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # Typer would end with 1, which means findings
            from ui.cli.options import PIPE_CLOSED  # noqa: PLC0415 - takes a second to import

            _drop_output()
            raise SystemExit(PIPE_CLOSED) from None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_command(str(name)), rest


def load_command(name: str) -> Any:
    """The subcommand ``name``, imported.

    Raises:
        ModuleNotFoundError: an optional package that it needs is not installed.
    """
    module, _, attribute = COMMANDS[name].target.partition(":")
    command = getattr(import_module(module), attribute)
    shelf = typer.Typer()
    if isinstance(command, typer.Typer):
        shelf.add_typer(command, name=name)
    else:
        shelf.command(name, context_settings=PASS_ON if name == "agent" else None)(command)
    return typer.main.get_group(shelf).commands[name]


app = typer.Typer(
    name="rankscope",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"rankscope {metadata.version('rankscope')}")
        raise typer.Exit


@app.callback()
def rankscope(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """See every rank of a training job; when it slows or stalls, name the rank, the host and the cause."""


def main() -> None:
    """Run the command line. A user's error is one message with a hint, never a traceback."""
    try:
        if sys.argv[1:] != ["--version"]:
            _prepare_process()
        app()
    except KeyboardInterrupt:  # before or after the command: Typer ends with the same status
        sys.exit(INTERRUPTED)
    except Exception as error:
        status = _report(error)
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
        sys.exit(status)


def _prepare_process() -> None:
    """End with the process that started this one, and on the first signal; keep new files and folders private.

    ``RANKSCOPE_UMASK`` changes their modes from 0600 and 0700.
    """
    from telemetry.files.private_modes import private_umask  # noqa: PLC0415
    from telemetry.process.parent_death import end_with_starter  # noqa: PLC0415 - NumPy comes with it
    from telemetry.process.signals import raise_on_ending  # noqa: PLC0415

    end_with_starter()
    raise_on_ending()
    os.umask(private_umask())


def _report(error: Exception) -> int:
    """Print the error; the exit status for it."""
    from telemetry.printable import write_lines  # noqa: PLC0415 - NumPy comes with it
    from telemetry.user_errors import CRASH_STATUS, user_error  # noqa: PLC0415

    command = next((COMMANDS[word] for word in sys.argv[1:] if word in COMMANDS), None)
    wrong = user_error(error, extra=command.extra if command else "all")
    if wrong is None:
        write_lines("".join(traceback.format_exception(error)))
        return CRASH_STATUS
    console = Console(stderr=True, soft_wrap=True)  # the message is printable, and diagnose needs an extra
    console.print("error:", style="bold red", end=" ")
    console.print(str(wrong), markup=False, highlight=False)
    return wrong.exit_status


def _drop_output() -> None:
    """Send what standard output still holds nowhere: a second failure at exit would change the status."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
