"""`rankscope diagnose` and what stands below it."""

from typing import Any

import typer
from typer.core import TyperGroup

from ui.cli.diagnose import diagnose
from ui.cli.hang import hang
from ui.cli.whatif import whatif

DEFAULT = "run"


class OneByDefault(TyperGroup):
    """Arguments that do not begin with a subcommand's name are the default's: ``diagnose RUN``, ``diagnose hang``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and args[0] in self.commands
        return super().parse_args(ctx, args if named else [DEFAULT, *args])


diagnose_app = typer.Typer(cls=OneByDefault, help="Explain what slows or stalls a run.", no_args_is_help=False)
diagnose_app.command(DEFAULT)(diagnose)
diagnose_app.command("hang")(hang)
diagnose_app.command("whatif")(whatif)
