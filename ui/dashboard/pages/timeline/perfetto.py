"""A button that opens a trace file in Perfetto's page, in a new tab of the browser.

The browser passes the file on (``assets/perfetto.js``). The server contacts no other server.
"""

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from dash import html
from dash.development.base_component import Component

from telemetry.errors import UsageError

VARIABLE = "RANKSCOPE_PERFETTO"
PUBLIC, OFF = "https://ui.perfetto.dev", "off"


def perfetto_from_environment(environment: Mapping[str, str] = os.environ) -> str:
    """The address of Perfetto's page in RANKSCOPE_PERFETTO. Default: the public one. Empty if it is ``off``.

    Raises:
        UsageError: the value is neither an address nor ``off``.
    """
    address = environment.get(VARIABLE, "").strip() or PUBLIC
    if address == OFF:
        return ""
    try:
        parts = urlsplit(address)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_address = False
    if not is_address:
        raise UsageError(f"{VARIABLE} is {address!r}", hint=f"the address of a copy of {PUBLIC}, or {OFF}")
    return address


def open_button(page: str, trace: str, title: str) -> Component:
    """A button that opens the file at ``trace``, an address of this server, in Perfetto at ``page``."""
    named = {"data-perfetto": page, "data-trace": trace, "data-title": title}
    return html.Button("Open in a new tab", className="button small", **named)
