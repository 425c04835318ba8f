"""`rankscope ui`: options."""

from dataclasses import dataclass

from ui.cli.commands.command import command
from ui.cli.commands.shared import (
    DEFAULT_STORE,
    CertificateOption,
    HostOption,
    KeyOption,
    PortOption,
    StoreOption,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UiOptions:
    """Serve the dashboard for a collector or a store. A collector serves the same dashboard itself."""

    store: StoreOption = DEFAULT_STORE
    host: HostOption = "127.0.0.1"
    port: PortOption = 8720
    tls_cert: CertificateOption = None
    tls_key: KeyOption = None


ui = command(UiOptions, "ui.cli.ui:ui")
