"""Options that several commands share."""

from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from telemetry.settings import DEFAULT_COLLECTOR
from telemetry.stores.address import checked_collector
from ui.cli.commands.command import Needs

DEFAULT_STORE = DEFAULT_COLLECTOR
NEWEST_RUN = "Run. Default: the newest one."

StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="RANKSCOPE_STORE",
        help="The store: a collector's address, embedded:DIR, or clickhouse://user:password@host:9000/database.",
    ),
]
OwnStoreOption = Annotated[
    str,
    typer.Option(
        envvar="RANKSCOPE_STORE", help="The store: embedded:DIR or clickhouse://user:password@host:9000/database."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
RunArgument = Annotated[str | None, typer.Argument(help=NEWEST_RUN, show_default=False)]
AttemptOption = Annotated[int | None, typer.Option(help="Attempt. Default: the newest one.", show_default=False)]
FirstStepOption = Annotated[int | None, typer.Option(help="First step to read.", min=0, show_default=False)]
LastStepOption = Annotated[int | None, typer.Option(help="Last step to read.", min=0, show_default=False)]
SpoolOption = Annotated[
    Path | None, typer.Option(help="Read the rank files in this folder instead of a store.", show_default=False)
]
HostOption = Annotated[
    str,
    typer.Option(
        help="Address to listen on. An address other than loopback needs a token in the environment "
        "(docs/guides/security.md)."
    ),
]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")]
CertificateOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        envvar="RANKSCOPE_TLS_CERT",
        help="Certificate (PEM). The server then accepts only https.",
        show_default=False,
    ),
]
KeyOption = Annotated[
    Path | None,
    typer.Option("--tls-key", envvar="RANKSCOPE_TLS_KEY", help="Private key of the certificate.", show_default=False),
]


def finite(value: float | None) -> float | None:
    """A callback of options: refuses ``nan`` and ``inf``, which Typer parses as numbers.

    Raises:
        typer.BadParameter: ``value`` is not finite.
    """
    if value is not None and not isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


def collector_address(value: str | None) -> str | None:
    """A callback of options: refuses an address that is not that of a collector.

    Raises:
        UsageError: see :func:`checked_collector`.
    """
    return checked_collector(value) if value else None


WatchOption = Annotated[bool, typer.Option("--watch", help="Check repeatedly and print what changes. Ctrl-C ends it.")]
EveryOption = Annotated[
    float,
    typer.Option(help="Seconds between two checks of --watch.", min=0.2, callback=finite),
    Needs(("again",)),
]
