"""`rankscope ui`: the dashboard alone, over any store."""

import os
from typing import Annotated

import typer

from diagnose.commands.options import DEFAULT_STORE, StoreOption, progress
from telemetry.readers import open_reader

HostOption = Annotated[str, typer.Option(help="Address to listen on; any but loopback needs RANKSCOPE_TOKEN.")]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")]


def ui(store: StoreOption = DEFAULT_STORE, host: HostOption = "127.0.0.1", port: PortOption = 8720) -> None:
    """Serve the dashboard over a collector or a store. (A collector serves it, too.)"""
    from ui.serving import run_dashboard  # noqa: PLC0415 - Dash takes a second to load

    with open_reader(store) as reader:
        progress.print(f"dashboard on http://{host}:{port}; Ctrl-C ends it")
        run_dashboard(reader, host, port, token=os.environ.get("RANKSCOPE_TOKEN"))
