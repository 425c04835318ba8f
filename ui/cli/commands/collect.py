"""`rankscope collect`: options."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from telemetry.settings import DEFAULT_PORT
from ui.cli.commands.command import command
from ui.cli.commands.shared import CertificateOption, HostOption, KeyOption, OwnStoreOption, PortOption

DashboardOption = Annotated[bool, typer.Option("--dashboard/--no-dashboard", help="Serve the dashboard too.")]
AlertsOption = Annotated[
    Path | None,
    typer.Option(
        help="File of rules and hooks (TOML). If set, the collector also watches the runs and sends alerts.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectOptions:
    """Receive spans, store them and answer queries. Ctrl-C ends the collector.

    The collector confirms data to an agent after the data is stored. Confirmed data is not lost if the collector ends.
    """

    store: OwnStoreOption = "embedded:rankscope-store"
    host: HostOption = "127.0.0.1"
    port: PortOption = DEFAULT_PORT
    dashboard: DashboardOption = True
    alerts: AlertsOption = None
    tls_cert: CertificateOption = None
    tls_key: KeyOption = None


collect = command(CollectOptions, "ui.cli.collect:collect")
