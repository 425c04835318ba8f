"""The agent as a command (``rankscope agent``, ``python -m telemetry.agent``) and its settings. Fast to import."""

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import NoReturn

from telemetry.errors import UsageError
from telemetry.process.quick_imports import quick_imports
from telemetry.process.signals import ended_by_signals
from telemetry.stores.address import checked_collector


def follow(prog: str, arguments: Sequence[str] | None = None, *, collector: str | None = None) -> None:
    """Run the agent until its ranks have ended and are stored. SIGTERM, SIGHUP or Ctrl-C end it after a last round.

    ``collector``: the default address.

    Raises:
        UsageError: invalid arguments or settings, no rank appeared, or the collector refuses what is sent.
        UnreachableError: no collector answered; the files stay.
        UnreadableError: a rank's files could not be read; all else is stored.
    """
    settings = parse_settings(prog, arguments, collector=collector)
    with quick_imports():
        from telemetry.agent.loop import run_agent  # noqa: PLC0415 - slow, and `--help` does not need it

    run_agent(settings, ended_by_signals())


MAX_INTERVAL_S = 3600.0
KEEP_DAYS = 14.0
DEFAULT = " (default: %(default)s)"
"""End of the help of an option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallSettings:
    """The limits after which a job counts as stalled.

    Raises:
        UsageError: invalid values.
    """

    factor: float = 5.0
    """The limit as a multiple of the usual step time, within ``floor_s`` and ``ceiling_s``."""
    floor_s: float = 10.0
    ceiling_s: float = 300.0
    confirm_s: float = 1.0
    """Time between the two samples that must be equal."""
    refresh_s: float = 30.0
    """Time between two collections of evidence in one stall."""

    def __post_init__(self) -> None:
        if self.factor <= 1:
            raise UsageError(
                f"stall factor {self.factor:g} is too small", hint="use a value above 1: a normal step is not a stall"
            )
        if not 0 < self.floor_s <= self.ceiling_s:
            raise UsageError(
                f"stall floor {self.floor_s:g} s and ceiling {self.ceiling_s:g} s are invalid",
                hint="use values above 0. The ceiling must not be lower than the floor",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSettings:
    """How often the host is sampled.

    Raises:
        UsageError: invalid values.
    """

    interval_s: float = 1.0
    """Time between two samples. If 0, the host is not sampled."""
    network_s: float = 0.0
    """Length of the windows of NIC byte counts. 0.01 shows bursts. If 0, there are no such windows."""

    def __post_init__(self) -> None:
        if self.interval_s != 0 and not 0.1 <= self.interval_s <= MAX_INTERVAL_S:
            raise UsageError(
                f"a sampling interval of {self.interval_s:g} s is out of range",
                hint=f"use 0.1 to {MAX_INTERVAL_S:g} s, or 0 to turn sampling off",
            )
        if self.network_s != 0 and not 0.01 <= self.network_s <= 10:
            raise UsageError(
                f"network windows of {self.network_s:g} s are out of range",
                hint="use 0.01 to 10 s, or 0 to turn them off",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """Which ranks an agent follows, and its collector."""

    spool: Path
    collector: str
    token: str | None = None
    run_id: str | None = None
    """The run to follow. If None, the agent follows every run under the spool folder."""
    attempt: int | None = None
    interval_s: float = 1.0
    patience_s: float = 60.0
    """Waiting time for a collector that does not answer, after every rank is over."""
    appear_s: float = 10.0
    """Waiting time for the first rank."""
    keep_days: float = KEEP_DAYS
    """Time to keep rank files that are completely stored. If 0, they are never deleted."""
    stall: StallSettings = field(default_factory=StallSettings)
    samplers: SamplerSettings = field(default_factory=SamplerSettings)


def parse_settings(prog: str, arguments: Sequence[str] | None, *, collector: str | None) -> AgentSettings:
    """The settings that a command line asks for.

    Raises:
        SystemExit: ``--help`` was printed.
        UsageError: an option is unknown or missing, or a value is wrong.
    """
    parser = _parser(prog, os.environ.get("RANKSCOPE_COLLECTOR") or collector)
    given = parser.parse_args(arguments)
    if not given.collector:
        raise UsageError(
            "the address of the collector is missing", hint="use --collector http://HOST:8719, or RANKSCOPE_COLLECTOR"
        )
    _check_times(given)
    return AgentSettings(
        spool=given.spool,
        collector=checked_collector(given.collector),
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


def _check_times(given: argparse.Namespace) -> None:
    if not 0 < given.interval <= MAX_INTERVAL_S:
        raise UsageError(
            f"--interval {given.interval:g} is out of range",
            hint=f"use more than 0 s, and at most {MAX_INTERVAL_S:g} s",
        )
    for name, unit in (("patience", "seconds"), ("appear", "seconds"), ("keep", "days")):
        if (value := getattr(given, name)) < 0:
            raise UsageError(f"--{name} {value:g} is negative", hint=f"use 0 or more {unit}")


def _number(text: str) -> float:
    """The number in ``text``. It must be finite: ``nan`` would pass every bound."""
    with suppress(ValueError):
        if isfinite(number := float(text)):
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")


class _Parser(argparse.ArgumentParser):
    """Reports wrong options as all other commands do."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(_plain_message(message), hint=f"see `{self.prog} --help`")


def _plain_message(message: str) -> str:
    """A message of argparse, such as ``argument --spool: expected one argument``, in plain words."""
    text = message.removeprefix("argument ")
    if (missing := text.removeprefix("the following arguments are required: ")) != text:
        return f"{missing} is missing"
    return text.replace("expected one argument", "the value is missing").replace("unrecognized arguments", "unknown")


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _parser(prog: str, collector: str | None) -> argparse.ArgumentParser:
    usual, stall, samplers = AgentSettings(spool=Path(), collector=""), StallSettings(), SamplerSettings()

    def setting(name: str, otherwise: float) -> str | float:
        """A default from the environment, which configures agents that a rank starts."""
        return os.environ.get(f"RANKSCOPE_{name}") or otherwise

    parser = _Parser(
        prog=prog,
        description="Send the rank files of this host to a collector. Collect evidence when ranks make no progress or "
        "die.",
    )
    parser.add_argument("--spool", type=Path, required=True, help="folder into which ranks write; required")
    parser.add_argument("--run", help="follow this run only")
    parser.add_argument("--attempt", type=_whole_number, help="follow this attempt only")
    parser.add_argument("--collector", default=collector, help="address of the collector, http://HOST:PORT" + DEFAULT)
    parser.add_argument(
        "--keep",
        type=_number,
        default=usual.keep_days,
        metavar="DAYS",
        help="days to keep the files of ranks that have ended and are stored completely; 0: forever" + DEFAULT,
    )
    seconds = {
        "--interval": (
            usual.interval_s,
            "between two checks of the rank files; up to 10 s in jobs with more than 200 hosts",
        ),
        "--patience": (usual.patience_s, "to wait for a collector that does not answer, after every rank has ended"),
        "--appear": (usual.appear_s, "to wait for the first rank; without a rank, the agent then ends with an error"),
        "--sample": (
            setting("SAMPLE_S", samplers.interval_s),
            "between two samples of NICs, GPUs and load; 0: no samples",
        ),
        "--network": (
            setting("NETWORK_S", samplers.network_s),
            "of each window in which the bytes of network cards are counted; 0.01 shows bursts; 0: off",
        ),
        "--stall-floor": (stall.floor_s, "without a step: a shorter pause is never a stall"),
        "--stall-ceiling": (
            stall.ceiling_s,
            "without a step: a longer pause is always a stall, even during a checkpoint",
        ),
    }
    for name, (default, help_text) in seconds.items():
        parser.add_argument(name, type=_number, default=default, metavar="S", help=f"seconds {help_text}{DEFAULT}")
    parser.add_argument(
        "--stall-factor",
        type=_number,
        default=stall.factor,
        metavar="N",
        help="a pause without a step is a stall if it is longer than N times the usual step time" + DEFAULT,
    )
    return parser
