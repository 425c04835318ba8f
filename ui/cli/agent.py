"""`rankscope agent`: ship the rank files of this host."""

import typer

from telemetry.agent.command import follow
from telemetry.settings import DEFAULT_COLLECTOR


def agent(context: typer.Context) -> None:
    """Ship rank files until their ranks have ended and everything is acknowledged; see `rankscope agent -h`."""
    follow("rankscope agent", context.args, collector=DEFAULT_COLLECTOR)
