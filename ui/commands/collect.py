"""`rankscope collect`: the collector, with the dashboard on the same server."""

from typing import Annotated

import typer
from fastapi import FastAPI
from rich.text import Text

from diagnose.commands.options import progress
from telemetry.readers import DEFAULT_PORT
from telemetry.stores.address import without_password
from telemetry.stores.interface import Store
from telemetry.stores.reader import StoreReader

StoreOption = Annotated[
    str, typer.Option(envvar="RANKSCOPE_STORE", help="embedded:DIR or clickhouse://user:password@host:9000/database.")
]
HostOption = Annotated[str, typer.Option(help="Address to listen on; any but loopback needs RANKSCOPE_TOKEN.")]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")]
DashboardOption = Annotated[bool, typer.Option("--dashboard/--no-dashboard", help="Serve the dashboard, too.")]


def collect(
    store: StoreOption = "embedded:rankscope-store",
    host: HostOption = "127.0.0.1",
    port: PortOption = DEFAULT_PORT,
    dashboard: DashboardOption = True,
) -> None:
    """Take in spans, keep them in a store, answer queries. Ctrl-C ends it; nothing acknowledged is lost."""
    from telemetry.ship.collector import run_collector  # noqa: PLC0415 - the engine is an optional extra
    from telemetry.ship.settings import CollectorSettings  # noqa: PLC0415

    settings = CollectorSettings.checked(store=store, host=host, port=port)

    def extend(server: FastAPI, opened: Store) -> None:
        """Called when the port is ours and the store is open."""
        if dashboard:
            _mount(server, opened)
        progress.print(Text(f"collector on http://{host}:{port}, store {without_password(store)}"))

    run_collector(settings, extend=extend)


def _mount(server: FastAPI, store: Store) -> None:
    from ui.app import mount_dashboard  # noqa: PLC0415 - Dash takes a second to load

    mount_dashboard(server, StoreReader(store))
