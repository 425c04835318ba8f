"""The work of `rankscope ui`: serve the dashboard for a collector or a store."""

from telemetry.collector.settings import ServerSettings
from ui.cli.commands.ui import UiOptions
from ui.cli.output import progress
from ui.cli.readers import open_reader
from ui.dashboard.app import run_dashboard


def ui(options: UiOptions) -> int:
    settings = ServerSettings.checked(
        host=options.host, port=options.port, tls_cert=options.tls_cert, tls_key=options.tls_key
    )
    address = f"{settings.scheme}://{options.host}:{options.port}"
    with open_reader(options.store) as reader:
        run_dashboard(reader, settings, lambda: progress.print(f"dashboard on {address}; Ctrl-C ends it"))
    return 0
