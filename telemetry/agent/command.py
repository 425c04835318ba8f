"""The agent as a command: ``rankscope agent``, and ``python -m telemetry.agent`` where only the agent is installed."""

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path

from telemetry.agent.loop import AgentSettings, run_agent
from telemetry.agent.sampling import MAX_INTERVAL_S, SamplerSettings
from telemetry.agent.stall import StallSettings
from telemetry.process.signals import ended_by_signals

SAYS = "Ship the rank files of this host to a collector, and collect evidence when its ranks stall or die."


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
    run_agent(settings, ended_by_signals())


def parse_settings(prog: str, arguments: Sequence[str] | None, *, collector: str | None) -> AgentSettings:
    """The settings that a command line asks for.

    Raises:
        SystemExit: status 2, what is wrong is told on stderr.
        UsageError: values that cannot work together.
    """
    parser = _parser(prog, os.environ.get("RANKSCOPE_COLLECTOR") or collector)
    given = parser.parse_args(arguments)
    if not given.collector:
        parser.error("give the collector's address: --collector http://host:port, or RANKSCOPE_COLLECTOR")
    if not 0 < given.interval <= MAX_INTERVAL_S or not min(given.patience, given.appear, given.keep) >= 0:
        parser.error(f"--interval must be above 0 and at most {MAX_INTERVAL_S:g}, and no value may be negative")
    return AgentSettings(
        spool=given.spool,
        collector=given.collector,
        run_id=given.run,
        attempt=given.attempt,
        interval_s=given.interval,
        patience_s=given.patience,
        appear_s=given.appear,
        keep_days=given.keep,
        stall=StallSettings(
            factor=given.stall_factor, floor_s=given.stall_floor, ceiling_s=max(given.stall_ceiling, given.stall_floor)
        ),
        samplers=SamplerSettings(interval_s=given.sample, network_s=given.network),
    )


def _number(text: str) -> float:
    """A finite number: ``nan`` would pass every bound."""
    with suppress(ValueError):
        if isfinite(number := float(text)):
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")


def _parser(prog: str, collector: str | None) -> argparse.ArgumentParser:
    usual, stall, samplers = AgentSettings(spool=Path(), collector=""), StallSettings(), SamplerSettings()

    def setting(name: str, otherwise: float) -> str | float:
        """From the environment: an agent that a rank starts gets no arguments for it."""
        return os.environ.get(f"RANKSCOPE_{name}") or otherwise

    parser = argparse.ArgumentParser(
        prog=prog, description=SAYS, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--spool", type=Path, required=True, help="folder that ranks write into")
    parser.add_argument("--run", help="follow this run only")
    parser.add_argument("--attempt", type=int, help="follow this attempt only")
    parser.add_argument("--collector", default=collector, help="address, http://host:port")
    parser.add_argument(
        "--keep",
        type=_number,
        default=usual.keep_days,
        metavar="DAYS",
        help="to keep rank files that have ended and are stored completely; 0: for ever",
    )
    seconds = {
        "--interval": (usual.interval_s, "between two rounds"),
        "--patience": (usual.patience_s, "to wait for a collector that does not answer, once every rank has ended"),
        "--appear": (usual.appear_s, "to wait for a first rank"),
        "--sample": (
            setting("SAMPLE_S", samplers.interval_s),
            "between two samples of NICs, GPUs and load; 0: none",
        ),
        "--network": (
            setting("NETWORK_S", samplers.network_s),
            "of windows in which the bytes of NICs are counted; 0: none",
        ),
        "--stall-floor": (stall.floor_s, "without a step that never count as a stall"),
        "--stall-ceiling": (stall.ceiling_s, "without a step that always count as suspect, even during a checkpoint"),
    }
    for name, (default, help_text) in seconds.items():
        parser.add_argument(name, type=_number, default=default, metavar="S", help=f"seconds {help_text}")
    parser.add_argument(
        "--stall-factor",
        type=_number,
        default=stall.factor,
        metavar="N",
        help="times the usual step that count as suspect",
    )
    return parser
