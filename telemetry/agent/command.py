"""The agent as a command: ``rankscope agent``, and ``python -m telemetry.agent`` where only the agent is installed."""

from collections.abc import Sequence

from telemetry.agent.settings import parse_settings
from telemetry.process.signals import ended_by_signals


def follow(prog: str, arguments: Sequence[str] | None = None, *, collector: str | None = None) -> None:
    """Run the agent until its ranks have ended and are stored. SIGTERM, SIGHUP or Ctrl-C end it after a last round.

    ``collector`` is where to ship to when neither the arguments nor the environment say so. Leaves with status 2 and
    the usage on stderr when the arguments make no sense.

    Raises:
        UsageError: no rank appeared, settings that cannot work, or the collector refuses what is sent.
        UnreachableError: no collector answered; the files stay.
        UnreadableError: a rank's files could not be read; all else is stored.
    """
    settings = parse_settings(prog, arguments, collector=collector)
    from telemetry.agent.loop import run_agent  # noqa: PLC0415 - `--help` needs none of what an agent loads

    run_agent(settings, ended_by_signals())
