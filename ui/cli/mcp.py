"""The work of `rankscope mcp`: the read-only operations as tools of the Model Context Protocol, over stdio."""

import os

import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from telemetry.errors import RankscopeError
from telemetry.printable import one_line
from telemetry.process.signals import SIGNAL_BASE, on_first_ending
from telemetry.version import __version__
from ui.cli.commands.mcp import McpOptions
from ui.cli.readers import open_reader
from ui.dashboard.data import Reads
from ui.dashboard.data.core import SHOWN_NAME
from ui.dashboard.tools.calling import Caller
from ui.dashboard.tools.operations import BY_NAME, DATA_NOTE, OPERATIONS, Operation, check

INSTRUCTIONS = (
    "Tools about stored runs of distributed training jobs. Begin with `runs`, then call `findings` with the name of a "
    "run: it names the initiating ranks, the stage and the cost. `hang` explains a run that makes no progress. "
    f"`heatmap` and `timeline` show the times behind a finding. Without a run, a tool takes the newest one. {DATA_NOTE}"
)
HINTS = types.ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


def mcp(options: McpOptions) -> int:
    on_first_ending(_end)
    with open_reader(options.store) as reader:
        anyio.run(_serve, make_server(Caller(Reads(reader), reader)))
    return 0


def _end(number: int) -> None:
    """End at once. There is nothing to save, and a thread of the SDK would wait for the next line of input."""
    os._exit(SIGNAL_BASE + number)


async def _serve(server: Server) -> None:
    """Serve one client, until it closes standard input."""
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def make_server(caller: Caller) -> Server:
    """The server. It has tools only."""

    async def list_tools(_: object, __: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_tool(operation) for operation in OPERATIONS])

    async def call_tool(_: object, asked: types.CallToolRequestParams) -> types.CallToolResult:
        if asked.name not in BY_NAME:
            names = ", ".join(BY_NAME)
            raise MCPError(types.INVALID_PARAMS, f"no tool {one_line(asked.name, SHOWN_NAME)}; the tools are {names}")
        return await _answer(BY_NAME[asked.name], asked, caller)

    return Server(
        "rankscope",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _tool(operation: Operation) -> types.Tool:
    return types.Tool(
        name=operation.name,
        title=operation.title,
        description=operation.description,
        input_schema=operation.parameters.model_json_schema(),
        output_schema=operation.result.model_json_schema(mode="serialization"),
        annotations=HINTS,
    )


async def _answer(operation: Operation, asked: types.CallToolRequestParams, caller: Caller) -> types.CallToolResult:
    """The result of a tool. An error is a result too, so that the assistant reads its hint."""
    try:
        found = await caller.call(operation, check(operation, asked.arguments or {}))
    except RankscopeError as error:
        return types.CallToolResult(content=[types.TextContent(text=str(error))], is_error=True)
    return types.CallToolResult(content=[types.TextContent(text=found.text)], structured_content=found.values)
