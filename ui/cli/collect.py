"""`rankscope collect`: the collector, with the dashboard on the same server."""

import sys
from contextlib import ExitStack
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer
from fastapi import FastAPI
from rich.text import Text

from diagnose.alerts.child import KeptAlive
from diagnose.alerts.settings import make_hooks, read_settings
from telemetry.errors import UsageError
from telemetry.settings import DEFAULT_PORT
from telemetry.stores.address import without_password
from telemetry.stores.interface import Reader
from ui.cli.options import progress
from ui.cli.serving_options import CertificateOption, HostOption, KeyOption, PortOption

StoreOption = Annotated[
    str, typer.Option(envvar="RANKSCOPE_STORE", help="embedded:DIR or clickhouse://user:password@host:9000/database.")
]
DashboardOption = Annotated[bool, typer.Option("--dashboard/--no-dashboard", help="Serve the dashboard, too.")]
AlertsOption = Annotated[
    Path | None,
    typer.Option(help="Watch the runs, too, and tell the hooks of this file of rules.", show_default=False),
]


def collect(
    store: StoreOption = "embedded:rankscope-store",
    host: HostOption = "127.0.0.1",
    port: PortOption = DEFAULT_PORT,
    dashboard: DashboardOption = True,
    alerts: AlertsOption = None,
    tls_cert: CertificateOption = None,
    tls_key: KeyOption = None,
) -> None:
    """Take in spans, keep them in a store, answer queries. Ctrl-C ends it; nothing acknowledged is lost."""
    from telemetry.collector.server import run_collector  # noqa: PLC0415 - the engine is an optional extra
    from telemetry.collector.settings import CollectorSettings  # noqa: PLC0415

    unseen = {} if dashboard else {"live": "interval"}
    settings = CollectorSettings.checked(
        store=store, host=host, port=port, tls_cert=tls_cert, tls_key=tls_key, **unseen
    )
    if dashboard and find_spec("dash") is None:
        raise UsageError(
            "the dashboard needs the package dash",
            hint="pip install 'rankscope[ui]', or serve none: --no-dashboard",
        )
    if alerts and tls_cert:
        raise UsageError(
            "--alerts with TLS: the watcher must call the collector by the name in its certificate",
            hint="start it by itself: rankscope alerts run --store https://NAME:PORT",
        )
    watcher = _watcher(alerts, host, port, dashboard) if alerts else None

    def extend(server: FastAPI, reader: Reader) -> None:
        """Called when the port is ours and the store is open."""
        if dashboard:
            from ui.dashboard.app import mount_dashboard  # noqa: PLC0415 - Dash takes a second to load

            mount_dashboard(server, reader, settings.live)
        progress.print(Text(f"collector on {settings.scheme}://{host}:{port}, store {without_password(store)}"))
        if watcher:
            beside.enter_context(watcher)

    with ExitStack() as beside:
        run_collector(settings, extend=extend)


def _watcher(rules: Path, host: str, port: int, dashboard: bool) -> KeptAlive:
    """The watcher of alerts, not started yet. Its file is checked here: what is wrong in it ends the command.

    Raises:
        UsageError: the file of rules is wrong, or nobody knows yet where the collector will be.
    """
    if port == 0:
        raise UsageError("--alerts with --port 0", hint="the watcher must be told where the collector is: give a port")
    said = read_settings(rules)
    make_hooks(said)
    address = f"http://{_near(host)}:{port}"
    told = ["--config", str(rules), "--store", address]
    linked = ["--dashboard", address] if dashboard and not said.dashboard else []
    command = [sys.executable, "-m", "ui.cli", "alerts", "run", *told, *linked]
    return KeptAlive(command, lambda text: progress.print(Text(text)))


def _near(host: str) -> str:
    """What to call for a server that listens on ``host`` of this machine."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if address.version == 6:
        return "[::1]" if address.is_unspecified else f"[{address}]"
    return "127.0.0.1" if address.is_unspecified else str(address)
