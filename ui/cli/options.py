"""Options that several commands share, and where they lead."""

from contextlib import suppress
from math import isfinite
from typing import Annotated

import typer

from diagnose.report.as_text import Terminal
from telemetry.settings import DEFAULT_COLLECTOR

StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="RANKSCOPE_STORE",
        help="Where the spans are: a collector's address, embedded:DIR, or clickhouse://user:password@host:9000/database.",
    ),
]
DEFAULT_STORE = DEFAULT_COLLECTOR
PIPE_CLOSED = 128 + 13
"""Exit status where the reader of a pipe closed it: as if SIGPIPE had ended the command."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
RunArgument = Annotated[str | None, typer.Argument(help="Run; the newest when left out.", show_default=False)]
AttemptOption = Annotated[int | None, typer.Option(help="Attempt; the newest when left out.", show_default=False)]


def finite(value: float | None) -> float | None:
    """A callback of options: ``nan`` and ``inf`` are numbers to Python, and pass any bound.

    Raises:
        typer.BadParameter: ``value`` is one of them.
    """
    if value is not None and not isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


class Results(Terminal):
    """Standard output. A reader that closes the pipe ends the command, with neither 0 (nothing found) nor 1."""

    def on_broken_pipe(self) -> None:
        with suppress(SystemExit):
            super().on_broken_pipe()
        raise SystemExit(PIPE_CLOSED)


out = Results(soft_wrap=True)
progress = Terminal(stderr=True, soft_wrap=True)
"""Everything else: standard error."""
