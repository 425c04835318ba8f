"""The work of `rankscope agent`: send the rank files of this host to a collector."""

from telemetry.agent.settings import follow
from telemetry.settings import DEFAULT_COLLECTOR
from ui.cli.commands.agent import AgentOptions


def agent(options: AgentOptions) -> int:
    follow("rankscope agent", options.context.args, collector=DEFAULT_COLLECTOR)
    return 0
