"""`rankscope ui`: the dashboard alone, over any store."""

from ui.cli.options import DEFAULT_STORE, StoreOption, progress
from ui.cli.readers import open_reader
from ui.cli.serving_options import CertificateOption, HostOption, KeyOption, PortOption


def ui(
    store: StoreOption = DEFAULT_STORE,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8720,
    tls_cert: CertificateOption = None,
    tls_key: KeyOption = None,
) -> None:
    """Serve the dashboard over a collector or a store. (A collector serves it, too.)"""
    from telemetry.collector.settings import ServerSettings  # noqa: PLC0415 - the server is an optional extra

    settings = ServerSettings.checked(host=host, port=port, tls_cert=tls_cert, tls_key=tls_key)
    from ui.dashboard.app import run_dashboard  # noqa: PLC0415 - Dash takes a second to import

    with open_reader(store) as reader:
        progress.print(f"dashboard on {settings.scheme}://{host}:{port}; Ctrl-C ends it")
        run_dashboard(reader, settings)
