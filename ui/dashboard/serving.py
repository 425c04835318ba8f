"""The dashboard on a port of its own, over a store or a collector elsewhere."""

from fastapi import FastAPI

from telemetry.collector.guard import guard
from telemetry.collector.server import listen, serve
from telemetry.collector.settings import ServerSettings
from telemetry.process.process_memory import limit_arenas
from telemetry.stores.interface import Reader
from ui.dashboard.app import mount_dashboard


def run_dashboard(reader: Reader, settings: ServerSettings) -> None:
    """Serve until SIGTERM, SIGHUP or Ctrl-C.

    Raises:
        UsageError: the port is in use, or the address is none of this machine's.
    """
    limit_arenas()
    with listen(settings.host, settings.port) as listener:
        server = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        guard(server, settings)
        mount_dashboard(server, reader, settings.live)
        serve(server, listener, settings)
