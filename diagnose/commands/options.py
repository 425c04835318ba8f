"""Options that several commands share, and where they lead."""

from typing import Annotated

import typer
from rich.console import Console

from telemetry.readers import DEFAULT_COLLECTOR

StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="RANKSCOPE_STORE",
        help="Where the spans are: a collector's address, embedded:DIR, or clickhouse://user:password@host:9000/database.",
    ),
]
DEFAULT_STORE = DEFAULT_COLLECTOR
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
RunArgument = Annotated[str | None, typer.Argument(help="Run; the newest when left out.", show_default=False)]
AttemptOption = Annotated[int | None, typer.Option(help="Attempt; the newest when left out.", show_default=False)]

out = Console(soft_wrap=True)
"""Results: standard output."""
progress = Console(stderr=True, soft_wrap=True)
"""Everything else: standard error."""
