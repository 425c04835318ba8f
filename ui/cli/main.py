"""The `rankscope` command. Only the options of the named subcommand are imported. Its work is imported when it runs.

exit status     0 nothing found    1 findings    2 wrong use or unreadable input    3 store or collector unreachable
               65 of a rank under torchrun: the loss is not finite    70 an internal error, with a traceback
               128 + n ended by signal n    141 the reader of a pipe closed it
"""

import os
import sys
import traceback
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperCommand, TyperGroup

from telemetry.files.access import be_private
from telemetry.plain_errors import in_plain_words
from telemetry.printable import write_lines
from telemetry.process.child_process import end_with_starter
from telemetry.process.signals import raise_on_ending
from telemetry.user_errors import CRASH_STATUS, user_error
from telemetry.version import __version__
from ui.cli.commands.command import PIPE_CLOSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Subcommand:
    """The place of a subcommand, and its line in the list of commands."""

    target: str
    """``module:name``: the module, and the command or group of commands in it."""
    extra: str
    """The extra that it needs: ``pip install 'rankscope[EXTRA]'``."""
    help: str
    """The first sentence of its own help."""


COMMANDS = {
    "demo": Subcommand(
        target="ui.cli.commands.demo:demo",
        extra="all",
        help="Train eight ranks on real text with one slow rank, and find that rank.",
    ),
    "run": Subcommand(
        target="ui.cli.commands.run:run",
        extra="all",
        help="Run a training command with tracing on, without code changes.",
    ),
    "train": Subcommand(
        target="ui.cli.commands.train:train",
        extra="train",
        help="Train a model from a recipe, a complete configuration.",
    ),
    "drive": Subcommand(
        target="ui.cli.commands.drive:drive_app",
        extra="all",
        help="Train a model on several nodes, and continue after a node fails.",
    ),
    "ablate": Subcommand(
        target="ui.cli.commands.ablate:ablate",
        extra="all",
        help="Train a recipe several times, with one technique more each time, and print what each technique gains.",
    ),
    "collect": Subcommand(
        target="ui.cli.commands.collect:collect",
        extra="store",
        help="Receive spans, store them and answer queries.",
    ),
    "migrate": Subcommand(
        target="ui.cli.commands.migrate:migrate", extra="store", help="Create or upgrade the tables of a store."
    ),
    "agent": Subcommand(
        target="ui.cli.commands.agent:agent",
        extra="agent",
        help="Send rank files to a collector until all ranks have ended and everything is stored.",
    ),
    "ui": Subcommand(
        target="ui.cli.commands.ui:ui", extra="ui", help="Serve the dashboard for a collector or a store."
    ),
    "runs": Subcommand(
        target="ui.cli.commands.runs:runs_app", extra="ui", help="List the stored runs, the newest first."
    ),
    "views": Subcommand(
        target="ui.cli.commands.views:views_app", extra="ui", help="List the saved views of the dashboard."
    ),
    "doctor": Subcommand(target="ui.cli.commands.doctor:doctor", extra="ui", help="Check this machine."),
    "import": Subcommand(
        target="ui.cli.commands.import_run:import_run", extra="ui", help="Store traces of other tools as a run."
    ),
    "simulate": Subcommand(
        target="ui.cli.commands.simulate:simulate_run",
        extra="ui",
        help="Simulate a run and store it like a recorded run.",
    ),
    "diagnose": Subcommand(
        target="ui.cli.commands.diagnose:diagnose_app", extra="ui", help="Explain what slows or stalls a run."
    ),
    "compare": Subcommand(
        target="ui.cli.commands.compare:compare",
        extra="ui",
        help="Compare two runs, attempts, step ranges or sets of ranks, and print whether B is slower than A.",
    ),
    "goodput": Subcommand(
        target="ui.cli.commands.goodput:goodput",
        extra="ui",
        help="Print how a run used its wall time over all attempts, and the cost of each incident.",
    ),
    "profile": Subcommand(
        target="ui.cli.commands.profile:profile",
        extra="ui",
        help="Profile ranks of a running job with torch's profiler, without a restart.",
    ),
    "alerts": Subcommand(
        target="ui.cli.commands.alerts:alerts_app",
        extra="ui",
        help="Send an alert when a problem begins, and again when it ends.",
    ),
    "mcp": Subcommand(
        target="ui.cli.commands.mcp:mcp",
        extra="mcp",
        help="Serve read-only tools about stored runs to an assistant, over standard input and output.",
    ),
    "export": Subcommand(
        target="ui.cli.commands.export:export_app",
        extra="ui",
        help="Export a run to OpenTelemetry, to an experiment tracker, or as a trace file.",
    ),
}
"""Name -> subcommand. The list of commands is shown without an import of any subcommand."""
INTERRUPTED = 130
CONTEXT_SETTINGS: dict[str, dict[str, Any]] = {
    "agent": {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    "run": {"allow_interspersed_args": False},
}
"""The agent parses its arguments itself, because it also runs where this command is not installed. In `rankscope run`,
all that follows the first word of the user's command belongs to that command."""


class Commands(TyperGroup):
    """A group that lists its subcommands by name and imports only the one that runs."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {
            name: TyperCommand(name, help=command.help, short_help=command.help) for name, command in COMMANDS.items()
        }

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # Typer would end with 1, which means findings
            _drop_output()
            raise SystemExit(PIPE_CLOSED) from None
        except typer.BadParameter as error:
            error.message = in_plain_words(error.message)
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_command(str(name)), rest


def load_command(name: str) -> Any:
    """The subcommand ``name`` with its options. The module of its work is imported when it runs."""
    module, _, attribute = COMMANDS[name].target.partition(":")
    command = getattr(import_module(module), attribute)
    shelf = typer.Typer(rich_markup_mode=None)
    if isinstance(command, typer.Typer):
        shelf.add_typer(command, name=name)
    else:
        shelf.command(name, context_settings=CONTEXT_SETTINGS.get(name))(command)
    return typer.main.get_group(shelf).commands[name]


app = typer.Typer(
    name="rankscope",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,  # Rich's tables cut names of options at 80 columns
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"rankscope {__version__}")
        raise typer.Exit


@app.callback()
def rankscope(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Show what every rank of a training job does. Name the rank, host and cause if the job slows or stalls."""


def main() -> None:
    """Run the command line. For an error of the user, print one message with a hint and no traceback."""
    try:
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
    """End this process if the process that started it ends, or on the first signal. Make new files and folders private.

    They have the modes 0600 and 0700, unless ``RANKSCOPE_UMASK`` is set.
    """
    end_with_starter()
    raise_on_ending()
    be_private()


def _report(error: Exception) -> int:
    """Print the error. Returns the exit status for it."""
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
    """Discard the rest of standard output. A second failure at exit would change the exit status."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
