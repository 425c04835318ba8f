"""The dashboard on a port of its own, over a store or a collector elsewhere."""

from fastapi import FastAPI

from telemetry.errors import UsageError
from telemetry.ship.access import TokenGate
from telemetry.ship.collector import listen, serve
from telemetry.ship.settings import is_loopback
from telemetry.stores.reader import Reader
from ui.app import mount_dashboard


def run_dashboard(reader: Reader, host: str, port: int, *, token: str | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Raises:
        UsageError: the port is in use, the address is none of this machine's, or an open address has no token.
    """
    if not token and not is_loopback(host):
        raise UsageError(
            f"listening on {host} needs a token", hint="set RANKSCOPE_TOKEN; browsers ask for it as a password"
        )
    with listen(host, port) as listener:
        server = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        if token:
            server.add_middleware(TokenGate, token=token)
        mount_dashboard(server, reader)
        serve(server, listener)
