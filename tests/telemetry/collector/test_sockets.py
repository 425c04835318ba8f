"""The server closes WebSockets that are too many, too fast, too large or too slow. A quiet one stays open."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
import uvicorn
from fastapi import FastAPI, Response, WebSocket, WebSocketDisconnect
from websockets.exceptions import ConnectionClosed, InvalidMessage
from websockets.sync.client import ClientConnection, connect

from telemetry.collector import connections, sockets
from telemetry.collector.serving import MAX_MESSAGE_BYTES, configured
from telemetry.collector.settings import ServerSettings
from tests.deadline import until
from tests.telemetry.collector.test_connections import ANSWER_BYTES, all_of, call, serving

UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def echo() -> FastAPI:
    """Returns each message. ``/flood`` sends without end."""
    app = FastAPI()

    @app.websocket("/")
    async def repeat(socket: WebSocket) -> None:
        await socket.accept()
        with suppress(WebSocketDisconnect):
            while True:
                await socket.send_text(await socket.receive_text())

    @app.websocket("/flood")
    async def flood(socket: WebSocket) -> None:
        await socket.accept()
        with suppress(WebSocketDisconnect):
            while True:
                await socket.send_bytes(bytes(2**20))

    @app.get("/large")
    def large() -> Response:
        return Response(bytes(ANSWER_BYTES))

    return app


@contextmanager
def echoing() -> Iterator[tuple[int, uvicorn.Server]]:
    """A server with sockets, and its port."""
    with serving(configured(echo(), ServerSettings.checked(live="websocket"))) as running:
        yield running


def opened(port: int) -> ClientConnection:
    return connect(f"ws://127.0.0.1:{port}/", proxy=None)


def echoes(one: ClientConnection, text: str) -> bool:
    try:
        one.send(text)
        return one.recv(timeout=30) == text
    except ConnectionClosed:
        return False


def test_quiet_websocket_stays_open_longer_than_the_request_head_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 2.0)
    with echoing() as (port, _), opened(port) as quiet, call(port) as silent:
        assert silent.recv(1) == b""  # opened after the WebSocket, and already closed by the server
        assert echoes(quiet, "still here")


def test_websockets_beyond_the_limit_are_refused_until_one_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "MAX_SOCKETS", 1)
    with echoing() as (port, server):
        with opened(port) as first:
            with pytest.raises((ConnectionError, InvalidMessage)):
                opened(port)
            assert echoes(first, "still here")
        until(lambda: not server.server_state.connections, what="its end")
        with opened(port) as next_one:
            assert echoes(next_one, "in its place")


def test_websocket_that_sends_too_large_or_too_many_messages_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "FRAMES_PER_SECOND", 1e-9)
    with echoing() as (port, _):
        with opened(port) as large:
            assert not echoes(large, "x" * (MAX_MESSAGE_BYTES + 1))
        with opened(port) as often:
            assert [echoes(often, "again") for _ in range(2)] == [True, False]
        with opened(port) as pinging:
            pinging.ping()
            assert not echoes(pinging, "again")


def test_websocket_that_does_not_read_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.2)
    with echoing() as (port, server), call(port) as lazy:
        lazy.sendall(UPGRADE.replace(b"GET /", b"GET /flood"))
        until(lambda: server.server_state.connections, what="the connection")
        until(lambda: not server.server_state.connections, what="its end")


def test_connection_is_closed_when_an_upgrade_follows_an_unread_answer() -> None:
    with echoing() as (port, server), call(port) as lazy:
        lazy.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n" + UPGRADE)
        assert lazy.recv(12) == b"HTTP/1.1 200"
        until(lambda: not server.server_state.connections, what="its end")
        assert all_of(lazy) < ANSWER_BYTES
