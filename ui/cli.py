"""The `rankscope` command: one short file a subcommand, gathered here."""

import sys

import typer

from diagnose.commands.alerts import alerts_app
from diagnose.commands.group import diagnose_app
from diagnose.commands.options import progress
from diagnose.commands.simulate import simulate_run
from telemetry.errors import RankscopeError
from ui.commands.agent import PASS_ON, agent
from ui.commands.collect import collect
from ui.commands.demo import demo
from ui.commands.doctor import doctor
from ui.commands.export import export_app
from ui.commands.import_run import import_run
from ui.commands.migrate import migrate
from ui.commands.runs import runs
from ui.commands.train import train
from ui.commands.ui import ui

app = typer.Typer(
    name="rankscope",
    help="See every rank of a training job; when it slows or stalls, name the rank, the host and the cause.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (demo, train, collect, migrate, agent, ui, runs, doctor):
    app.command(context_settings=PASS_ON if command is agent else None)(command)
app.command("import")(import_run)
app.command("simulate")(simulate_run)
app.add_typer(diagnose_app, name="diagnose")
app.add_typer(alerts_app, name="alerts")
app.add_typer(export_app, name="export")


def main() -> None:
    """Run the command line. A user's error is one message with a hint, never a traceback."""
    try:
        app()
    except RankscopeError as error:
        progress.print("error:", style="bold red", end=" ")
        progress.print(str(error), markup=False, highlight=False)
        sys.exit(error.exit_status)
    except BrokenPipeError:
        sys.exit(0)


if __name__ == "__main__":
    main()
