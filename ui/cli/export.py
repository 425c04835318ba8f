"""`rankscope export`: a run in the form of others."""

import typer

from ui.cli.export_otlp import export_otlp
from ui.cli.export_perfetto import export_perfetto

export_app = typer.Typer(help="A run in the form of others.", no_args_is_help=True)


@export_app.callback()
def export() -> None:
    """A run in the form of others."""


export_app.command("otlp")(export_otlp)
export_app.command("perfetto")(export_perfetto)
