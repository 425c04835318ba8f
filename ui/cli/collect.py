"""The work of `rankscope collect`: the collector, with the dashboard on the same server."""

from contextlib import ExitStack
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path

from fastapi import FastAPI
from rich.text import Text

from diagnose.alerts.child import KeptAlive
from diagnose.alerts.settings import make_hooks, read_settings
from diagnose.metrics.run_metrics import RunMetrics
from telemetry.collector.server import run_collector
from telemetry.collector.settings import CollectorSettings
from telemetry.errors import UsageError
from telemetry.process.child_process import python_module
from telemetry.process.quick_imports import quick_imports
from telemetry.stores.address import without_password
from telemetry.stores.interface import Reader
from ui.cli.commands.collect import CollectOptions
from ui.cli.output import progress


def collect(options: CollectOptions) -> int:
    settings = _settings(options)
    watcher = _watcher(options, options.alerts) if options.alerts else None
    address = f"{settings.scheme}://{options.host}:{options.port}"

    def extend(server: FastAPI, reader: Reader) -> None:
        """Called after the port and the store are open."""
        server.state.metrics.register(RunMetrics(reader))
        if options.dashboard:
            with quick_imports():
                from ui.dashboard.app import mount_dashboard  # noqa: PLC0415 - an optional extra: --no-dashboard

            may_order = bool(settings.tokens.full)
            mount_dashboard(server, reader, settings.live, takes_orders=may_order, takes_actions=True)
        progress.print(Text(f"collector on {address}, store {without_password(options.store)}"))
        if watcher:
            running.enter_context(watcher)

    with ExitStack() as running:
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
            hint="pip install 'rankscope[ui]', or start without the dashboard: --no-dashboard",
        )
    if options.alerts and options.tls_cert:
        raise UsageError(
            "--alerts does not work with --tls-cert: the watcher must use the host name in the certificate",
            hint="start the watcher separately: rankscope alerts run --store https://NAME:PORT",
        )
    return settings


def _watcher(options: CollectOptions, rules: Path) -> KeptAlive:
    """The alert watcher. It is not started yet. The rules file is checked here, so that errors end the command.

    Raises:
        UsageError: the rules file is invalid, or the port of the collector is not known in advance.
    """
    if options.port == 0:
        raise UsageError("--alerts does not work with --port 0", hint="choose a port: the watcher connects to it")
    settings = read_settings(rules)
    make_hooks(settings)
    address = f"http://{_local_address(options.host)}:{options.port}"
    watcher_options = ["--config", str(rules), "--store", address]
    links = ["--dashboard", address] if options.dashboard and not settings.dashboard else []
    command = [*python_module("ui.cli"), "alerts", "run", *watcher_options, *links]
    return KeptAlive(command, lambda text: progress.print(Text(text)))


def _local_address(host: str) -> str:
    """The address that reaches a server of this machine that listens on ``host``."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if address.version == 6:
        return "[::1]" if address.is_unspecified else f"[{address}]"
    return "127.0.0.1" if address.is_unspecified else str(address)
