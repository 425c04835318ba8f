"""The dashboard on a server that has routes of its own."""

import re
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI

from telemetry.collector.guard import TokenGate
from telemetry.credentials import Tokens
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.deadline import until
from tests.ui.counting import Counting
from tests.ui.served_dashboard import serving_app
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.app import FOLDER, mount_dashboard


def made_server(store: EmbeddedStore) -> FastAPI:
    """An application with one route, and with the dashboard mounted in it."""
    server = FastAPI()

    @server.get("/healthz")
    def healthy() -> dict[str, bool]:
        return {"ok": True}

    mount_dashboard(server, StoreReader(store))
    return server


@pytest.fixture(scope="module")
def client(store: EmbeddedStore) -> Iterator[httpx.Client]:
    with serving_app(made_server(store)) as address, httpx.Client(base_url=address, verify=False) as client:
        yield client


def test_routes_of_the_server_stay_available_beside_the_dashboard(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"ok": True}
    assert "rankscope" in client.get("/").text
    assert client.get("/v1/nothing").status_code == 404
    assert client.get("/_dash-layout").json()["type"] == "MantineProvider"


def test_the_page_contacts_no_other_server(client: httpx.Client) -> None:
    assert not re.findall(r"<(?:script|link)[^>]+(?:src|href)=\"(?:https?:)?//", client.get("/").text)


def test_assets_are_immutable_and_answers_are_compressed(client: httpx.Client) -> None:
    index = client.get("/")
    script, style = re.findall(r"(?:src|href)=\"(/own-assets/[^\"]+)\"", index.text)[::-1]
    for address, files in ((script, "*.js"), (style, "*.css")):
        kept = client.get(address)
        assert "immutable" in kept.headers["cache-control"]
        assert kept.headers["content-encoding"] == "gzip"
        assert all(file.read_text("utf-8") in kept.text for file in FOLDER.rglob(files))
    assert "immutable" not in index.headers.get("cache-control", "")
    assert client.get("/_dash-layout").headers["content-encoding"] == "gzip"


def test_plotly_is_preloaded_only_on_pages_with_figures(client: httpx.Client) -> None:
    said = client.get("/?view=heatmap&run=made").headers["link"]
    address = said.partition("<")[2].partition(">")[0]
    assert said.endswith("rel=preload; as=script")
    assert "plotly.js" in client.get(address).text[:200]
    assert "link" not in client.get("/?view=runs").headers


def test_queries_of_a_page_start_when_its_address_is_requested(store: EmbeddedStore, run: SyntheticRun) -> None:
    reader, server = Counting(StoreReader(store)), FastAPI()
    mount_dashboard(server, reader)
    with serving_app(server) as address, httpx.Client(base_url=address, verify=False) as client:
        for search in ("?view=heatmap&run=made&stage=optimizer", "?view=heatmap&run=nope", "?view=<b>"):
            assert client.get(f"/{search}").status_code == 200
        until(lambda: reader.asked["StageTotals"] == 1, what="the sums of the heat map")


def test_mcp_endpoint_of_dash_is_not_served_even_if_the_environment_enables_it(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DASH_MCP_ENABLED", "true")
    server = FastAPI()
    mount_dashboard(server, StoreReader(store))
    with serving_app(server) as address:
        assert httpx.post(f"{address}_mcp", json={}, verify=False).status_code == 404


def test_dashboard_behind_a_token_rejects_requests_without_it(store: EmbeddedStore) -> None:
    server = made_server(store)
    server.add_middleware(TokenGate, tokens=Tokens(full="secret"))
    with serving_app(server) as address, httpx.Client(base_url=address, verify=False) as client:
        assert client.get("/").status_code == 401
        assert client.get("/_dash-layout").status_code == 401
        assert client.get("/", auth=("anyone", "secret")).status_code == 200
