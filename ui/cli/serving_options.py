"""Options of every command that serves."""

from pathlib import Path
from typing import Annotated

import typer

HostOption = Annotated[
    str,
    typer.Option(
        help="Address to listen on; any but loopback needs a token in the environment (docs/guides/security.md)."
    ),
]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")]
CertificateOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert", envvar="RANKSCOPE_TLS_CERT", help="Certificate in PEM: serve https.", show_default=False
    ),
]
KeyOption = Annotated[
    Path | None,
    typer.Option("--tls-key", envvar="RANKSCOPE_TLS_KEY", help="Key of that certificate.", show_default=False),
]
