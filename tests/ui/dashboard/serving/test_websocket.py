"""The websocket that sends updates to pages: who may open it, which messages are valid, and that it leaves nothing."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pyarrow as pa
import pytest
import uvicorn
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from telemetry.collector.settings import ServerSettings
from telemetry.errors import UsageError
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Query, StoreReader
from tests.deadline import until
from tests.each_case import each_case
from tests.ui.served_dashboard import serving_as_set
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.address import parse_search

TOKEN = {"Authorization": "Bearer hush"}
PATH = "_dash-ws-callback"


@pytest.fixture(autouse=True)
def _opened_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ui.dashboard.serving.live.OPENING_S", 0.0)


@pytest.fixture(scope="module")
def served(store: EmbeddedStore, run: SyntheticRun) -> Iterator[tuple[str, uvicorn.Server]]:
    with serving_as_set(StoreReader(store), ServerSettings.checked(live="websocket", token="hush")) as running:
        yield running


def opened(address: str, *, origin: str | None = None, name: str = "127.0.0.1", **headers: str) -> ClientConnection:
    """A socket as the page of ``address`` opens it. ``name``: a host name that resolves to this address."""
    port = int(address.rpartition(":")[2].rstrip("/"))
    address = address.replace("127.0.0.1", name)
    own = address.rstrip("/")
    return connect(
        f"{address.replace('http', 'ws', 1)}{PATH}",
        origin=own if origin is None else origin,  # type: ignore[arg-type]
        additional_headers=headers,
        sock=socket.create_connection(("127.0.0.1", port)),
    )


def follow_of(address: str, **headers: str) -> str:
    """Name of the callback that a page starts over the socket."""
    dependencies = httpx.get(f"{address}_dash-dependencies", headers=headers, verify=False).json()
    return str(next(one["output"] for one in dependencies if one.get("websocket")))


def status_of_refusal(address: str, **settings: Any) -> int:
    with pytest.raises(InvalidStatus) as refused, opened(address, **settings):
        pass
    return refused.value.response.status_code


class Page:
    """The browser's side of the websocket for one page."""

    def __init__(self, socket: ClientConnection, follow: str, search: str) -> None:
        self.socket = socket
        state = parse_search(search).state
        self.props: dict[str, Any] = {"url": search, "known": None, "page": f"{state.view}/{state.run}/None/page"}
        asked = {"type": "callback_request", "rendererId": "page", "requestId": "page-1", "payload": {"output": follow}}
        socket.send(json.dumps(asked))
        self.messages = self._messages()

    def next_message(self) -> dict[str, Any]:
        """The next message that is not a request for properties."""
        return next(one for one in self.messages if one["type"] != "get_props_request")

    def _messages(self) -> Iterator[dict[str, Any]]:
        """Yields one message after the other. Answers requests for properties at once."""
        while True:
            said = json.loads(self.socket.recv(timeout=30))
            for one in said if isinstance(said, list) else [said]:
                if one["type"] == "get_props_request":
                    wanted = one["payload"]
                    props = {name: self.props[wanted["componentId"]] for name in wanted["properties"]}
                    answer = {"type": "get_props_response", "requestId": one["requestId"], "payload": props}
                    self.socket.send(json.dumps(answer))
                yield one


class Slow:
    """A reader that answers after ``let`` is set."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self.asked, self.let = threading.Event(), threading.Event()

    def read(self, query: Query) -> pa.Table:
        self.asked.set()
        self.let.wait(60)
        return self._reader.read(query)


def test_invalid_live_setting_raises_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_LIVE", "sometimes")
    with pytest.raises(UsageError, match="RANKSCOPE_LIVE: must be 'interval' or 'websocket'"):
        ServerSettings.checked()


def test_websocket_requires_the_origin_of_the_page_and_a_valid_token(served: tuple[str, uvicorn.Server]) -> None:
    address, _ = served
    with opened(address, **TOKEN):
        pass
    assert status_of_refusal(address) == 403
    assert status_of_refusal(address, Authorization="Bearer guessed") == 403
    for origin in ("http://evil.example", "http://127.0.0.1:1", "null", ""):
        assert status_of_refusal(address, origin=origin, **TOKEN) == 403, origin


def test_websocket_is_rejected_for_a_foreign_host_name_and_above_the_request_limit(store: EmbeddedStore) -> None:
    settings = ServerSettings.checked(live="websocket", requests_per_second=1)
    with serving_as_set(StoreReader(store), settings) as (address, _):
        assert status_of_refusal(address, name="evil.example") == 403
        with opened(address):
            assert status_of_refusal(address) == 403  # the third within two seconds


def test_websocket_is_not_served_and_pages_do_not_use_it_without_the_setting(
    store: EmbeddedStore, served: tuple[str, uvicorn.Server]
) -> None:
    with serving_as_set(StoreReader(store), ServerSettings.checked()) as (address, _):
        assert status_of_refusal(address) == 404
        assert PATH not in httpx.get(address, verify=False).text
    assert PATH in httpx.get(served[0], headers=TOKEN, verify=False).text


@each_case(
    "said",
    [
        "no JSON",
        "[" * 60_000,
        "[]",
        b"bytes",
        '{"type": "callback_request", "requestId": "1", "rendererId": "1", "payload": {"output": "page.children"}}',
        '{"type": "callback_request", "requestId": [], "rendererId": "1", "payload": {}}',
        '{"type": "get_props_response", "requestId": "1", "payload": "x"}',
    ],
)
def test_invalid_message_closes_the_websocket_without_a_log_entry(
    served: tuple[str, uvicorn.Server], said: str | bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with opened(served[0], **TOKEN) as ours:
        ours.send(said)
        with pytest.raises(ConnectionClosed) as closed:
            ours.recv(timeout=30)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008
    assert capfd.readouterr().err == ""


def test_dropped_websockets_leave_no_task_and_no_thread(served: tuple[str, uvicorn.Server]) -> None:
    address, server = served
    loop, follow = server.servers[0].get_loop(), follow_of(address, **TOKEN)
    until(lambda: not server.server_state.connections, what="the end of others")
    tasks = len(asyncio.all_tasks(loop))

    def come_and_go() -> None:
        with ExitStack() as open_ones:
            ours = [open_ones.enter_context(opened(address, **TOKEN)) for _ in range(20)]
            for page in [Page(one, follow, "?view=overview&run=made") for one in ours]:
                assert page.next_message()["payload"]["componentId"] == "connection"
            for one in ours[:10]:
                one.socket.shutdown(socket.SHUT_RDWR)  # the others are closed properly
        until(lambda: not server.server_state.connections, what="their end")
        until(lambda: len(asyncio.all_tasks(loop)) <= tasks, what="the end of their tasks")

    come_and_go()
    threads = threading.active_count()
    come_and_go()
    until(lambda: threading.active_count() <= threads, what="the end of their threads")


def test_slow_store_does_not_block_other_messages_of_the_websocket(store: EmbeddedStore, run: SyntheticRun) -> None:
    reader = Slow(StoreReader(store))
    with serving_as_set(reader, ServerSettings.checked(live="websocket")) as (address, _), opened(address) as ours:
        page = Page(ours, follow_of(address), "?view=runs")
        assert [next(page.messages)["type"] for _ in range(2)] == ["get_props_request"] * 2
        until(reader.asked.is_set, what="the look")
        ours.send('{"type": "heartbeat"}')
        assert page.next_message()["type"] == "heartbeat_ack"
        reader.let.set()
        assert page.next_message()["type"] == "set_props"


def test_page_that_is_loading_receives_no_update(served: tuple[str, uvicorn.Server]) -> None:
    with opened(served[0], **TOKEN) as ours:
        page = Page(ours, follow_of(served[0], **TOKEN), "?view=runs")
        page.props["page"] = "overview/made/None/page"
        asked = [next(page.messages) for _ in range(4)]
        assert [one["payload"]["componentId"] for one in asked] == ["url", "page", "url", "page"]
        page.props["page"] = "runs//None/page"
        assert page.next_message()["type"] == "set_props"


def test_closed_page_with_an_open_websocket_is_forgotten(
    served: tuple[str, uvicorn.Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ui.dashboard.serving.live.GONE_S", 0.1)
    with opened(served[0], **TOKEN) as ours:
        page = Page(ours, follow_of(served[0], **TOKEN), "?view=runs")
        messages = [json.loads(page.socket.recv(timeout=30)) for _ in range(2)]
    assert [one["type"] for one in messages] == ["get_props_request", "callback_response"]
    assert messages[1]["payload"] == {"status": "prevent_update"}
