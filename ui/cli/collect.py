"""The work of `rankscope collect`: the collector, with the dashboard on the same server."""

from contextlib import ExitStack
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path

from fastapi import FastAPI
from rich.text import Text

from diagnose.alerts.child import KeptAlive
from diagnose.alerts.settings import make_hooks, read_settings
from telemetry.collector.server import run_collector
from telemetry.collector.settings import CollectorSettings
from telemetry.errors import UsageError
from telemetry.process.child_process import python_module
from telemetry.stores.address import without_password
from telemetry.stores.interface import Reader
from ui.cli.commands.collect import CollectOptions
from ui.cli.output import progress


def collect(options: CollectOptions) -> int:
    settings = _settings(options)
    watcher = _watcher(options, options.alerts) if options.alerts else None
    address = f"{settings.scheme}://{options.host}:{options.port}"

    def extend(server: FastAPI, reader: Reader) -> None:
        """Called when the port is ours and the store is open."""
        if options.dashboard:
            from ui.dashboard.app import mount_dashboard  # noqa: PLC0415 - an optional extra: --no-dashboard

            mount_dashboard(server, reader, settings.live)
        progress.print(Text(f"collector on {address}, store {without_password(options.store)}"))
        if watcher:
            beside.enter_context(watcher)

    with ExitStack() as beside:
        run_collector(settings, extend=extend)
    return 0


def _settings(options: CollectOptions) -> CollectorSettings:
    """The server's settings.

    Raises:
        UsageError: an option is wrong, or two of them cannot be used together.
    """
    unseen = {} if options.dashboard else {"live": "interval"}
    settings = CollectorSettings.checked(
        store=options.store,
        host=options.host,
        port=options.port,
        tls_cert=options.tls_cert,
        tls_key=options.tls_key,
        **unseen,
    )
    if options.dashboard and find_spec("dash") is None:
        raise UsageError(
            "the dashboard needs the package dash",
            hint="pip install 'rankscope[ui]', or serve none: --no-dashboard",
        )
    if options.alerts and options.tls_cert:
        raise UsageError(
            "--alerts with TLS: the watcher must call the collector by the name in its certificate",
            hint="start it by itself: rankscope alerts run --store https://NAME:PORT",
        )
    return settings


def _watcher(options: CollectOptions, rules: Path) -> KeptAlive:
    """The watcher of alerts, not started yet. Its file is checked here: what is wrong in it ends the command.

    Raises:
        UsageError: the file of rules is wrong, or nobody knows yet where the collector will be.
    """
    if options.port == 0:
        raise UsageError("--alerts with --port 0", hint="the watcher must be told where the collector is: give a port")
    said = read_settings(rules)
    make_hooks(said)
    address = f"http://{_near(options.host)}:{options.port}"
    told = ["--config", str(rules), "--store", address]
    linked = ["--dashboard", address] if options.dashboard and not said.dashboard else []
    command = [*python_module("ui.cli"), "alerts", "run", *told, *linked]
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
