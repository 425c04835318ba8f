"""`rankscope agent`. The agent parses the arguments itself, because it also runs without this command."""

from dataclasses import dataclass

import typer

from ui.cli.commands.command import command


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """Send rank files to a collector until all ranks have ended and everything is stored; see `rankscope agent -h`."""

    context: typer.Context


agent = command(AgentOptions, "ui.cli.agent:agent")
