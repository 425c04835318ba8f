"""`rankscope mcp`: options."""

from dataclasses import dataclass

from ui.cli.commands.command import command
from ui.cli.commands.shared import DEFAULT_STORE, StoreOption


@dataclass(frozen=True, slots=True, kw_only=True)
class McpOptions:
    """Serve read-only tools about stored runs to an assistant, over standard input and output.

    An MCP client starts this command and ends it. The command opens no port, and changes nothing in the store.
    """

    store: StoreOption = DEFAULT_STORE


mcp = command(McpOptions, "ui.cli.mcp:mcp")
