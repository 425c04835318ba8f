"""`rankscope mcp` over real pipes, called by the client of the SDK: its tools, their answers, and their errors.

The SDK is loaded by the tests, because it takes a second, and each worker collects this file.
"""

import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from telemetry.collector.server import create_app
from telemetry.collector.settings import CollectorSettings
from telemetry.process.child_process import child_environment
from telemetry.stores.interface import StoreReader
from tests.ui.dashboard.tools.stored_runs import CALLS, stored_runs
from tests.ui.served_dashboard import serving_app
from ui.cli.readers import open_reader
from ui.dashboard.app import mount_dashboard
from ui.dashboard.data import Reads
from ui.dashboard.tools.calling import Caller
from ui.dashboard.tools.operations import DATA_NOTE, OPERATIONS

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("findings", {"run": "nobody"}, "no run is called nobody"),
    ("heatmap", {"run": "made", "stage": ["<b>"]}, "stage: must be text"),
    ("heatmap", {"run": "made", "max_cells": 7}, "max_cells is 7"),
    ("runs", {"limit": None, "; drop": 1}, "runs"),
    ("compare", {}, "a: is missing"),
]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with stored_runs() as store:
        server = create_app(store, CollectorSettings())
        mount_dashboard(server, StoreReader(store))
        with serving_app(server) as address:
            yield address.rstrip("/")


def run_async(use: Callable[[], Awaitable[None]]) -> None:
    """Run it in a separate thread. After browser tests, Playwright keeps an event loop in the main thread."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(anyio.run, use).result()


def client(store: str, log: Any) -> Any:
    stdio = import_module("mcp.client.stdio")
    server = stdio.StdioServerParameters(
        command=sys.executable, args=["-m", "ui.cli", "mcp", "--store", store], env=child_environment()
    )
    return import_module("mcp.client").Client(stdio.stdio_client(server, errlog=log))


def test_mcp_tools_match_the_operations_and_return_the_same_answers_as_the_routes(address: str, tmp_path: Path) -> None:
    types, errors = import_module("mcp.types"), import_module("mcp.shared.exceptions")

    async def use() -> None:
        with (tmp_path / "log").open("w") as log:
            async with client(address, log) as tools:
                listed = (await tools.list_tools()).tools
                assert [tool.name for tool in listed] == [operation.name for operation in OPERATIONS]
                for tool in listed:
                    assert tool.annotations is not None
                    assert tool.annotations.read_only_hint
                    assert DATA_NOTE in (tool.description or "")
                    assert tool.input_schema["additionalProperties"] is False
                    assert all(field["description"] for field in tool.input_schema["properties"].values())
                for name, asked in CALLS.items():  # the client checks each answer against the schema of the tool
                    found = await tools.call_tool(name, asked)
                    route = httpx.get(f"{address}/api/v1/{name}", params=asked, verify=False, timeout=60)
                    assert (found.is_error, found.structured_content) == (False, route.json())
                    (text,) = found.content
                    assert isinstance(text, types.TextContent)
                    assert text.text == route.text
                for name, wrong, words in WRONG:
                    refused = await tools.call_tool(name, wrong)
                    (text,) = refused.content
                    assert refused.is_error
                    assert isinstance(text, types.TextContent)
                    assert words.lower() in text.text.lower()
                    assert "\n\nhint: " in text.text
                with pytest.raises(errors.MCPError, match="no tool delete"):
                    await tools.call_tool("delete", {})

    run_async(use)
    assert (tmp_path / "log").read_text() == ""


def test_unreachable_store_is_returned_as_a_tool_error() -> None:
    make_client, make_server = import_module("mcp.client").Client, import_module("ui.cli.mcp").make_server

    async def use() -> None:
        with open_reader("http://127.0.0.1:9") as reader:
            async with make_client(make_server(Caller(Reads(reader), reader))) as tools:
                refused = await tools.call_tool("runs", {})
                assert refused.is_error
                assert "hint: " in str(refused.content[0])

    run_async(use)
