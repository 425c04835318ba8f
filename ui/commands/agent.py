"""`rankscope agent`: ship the rank files of this host."""

import typer

from telemetry.agent.command import follow
from telemetry.readers import DEFAULT_COLLECTOR

PASS_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
"""The agent reads its arguments itself: it also runs where this command is not installed."""


def agent(context: typer.Context) -> None:
    """Ship rank files until their ranks have ended and everything is acknowledged; see `rankscope agent -h`."""
    follow("rankscope agent", context.args, collector=DEFAULT_COLLECTOR)
