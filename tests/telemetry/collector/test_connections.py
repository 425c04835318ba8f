"""The server closes connections that would stay open forever."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.responses import Response

from telemetry.collector import connections
from telemetry.collector.connections import BoundedConnection
from telemetry.collector.serving import configured, listen
from telemetry.collector.settings import ServerSettings
from tests.certificates import make_authority, make_server
from tests.deadline import until

ANSWER_BYTES = 64 * 2**20


def plain() -> uvicorn.Config:
    """Configuration of a server with large answers."""
    app = Response(bytes(ANSWER_BYTES))
    return uvicorn.Config(
        app, http=BoundedConnection, lifespan="off", log_level="error", timeout_graceful_shutdown=1, loop="asyncio"
    )


@contextmanager
def serving(config: uvicorn.Config | None = None) -> Iterator[tuple[int, uvicorn.Server]]:
    """A server, and its port."""
    with listen("127.0.0.1", 0) as listener:
        server = uvicorn.Server(config or plain())
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        until(lambda: server.started, what="the server")
        try:
            yield listener.getsockname()[1], server
        finally:
            server.should_exit = True
            thread.join()


def call(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def all_of(connection: socket.socket) -> int:
    """Number of bytes received until the other side closes the connection."""
    size = 0
    try:
        while chunk := connection.recv(2**20):
            size += len(chunk)
    except ConnectionError:
        pass
    return size


ASK = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


def test_connection_without_a_complete_request_head_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.2)
    with serving() as (port, _), call(port) as silent, call(port) as slow:
        slow.sendall(ASK[:-2])
        assert all_of(silent) == all_of(slow) == 0


def test_connection_is_closed_when_the_client_does_not_read_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.2)
    with serving() as (port, server), call(port) as lazy:
        lazy.sendall(ASK)
        until(lambda: server.server_state.connections, what="the connection")
        until(lambda: not server.server_state.connections, what="its end")
        assert all_of(lazy) < ANSWER_BYTES


def test_client_that_reads_gets_the_whole_answer_and_can_send_a_second_request() -> None:
    with serving() as (port, _), call(port) as reader:
        reader.sendall(ASK + ASK.replace(b"Host", b"Connection: close\r\nHost"))
        assert all_of(reader) > 2 * ANSWER_BYTES


def test_connections_beyond_the_limit_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "max_connections", lambda: 2)
    with serving() as (port, _), call(port) as first, call(port) as second:
        first.sendall(ASK[:5])
        second.sendall(ASK[:5])
        with call(port) as third:
            assert all_of(third) == 0
        first.sendall(ASK[5:])
        assert first.recv(12) == b"HTTP/1.1 200"


def test_connections_with_an_unfinished_tls_handshake_count_toward_the_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(connections, "max_connections", lambda: 2)
    ours = make_server(tmp_path, make_authority(tmp_path))
    settings = ServerSettings.checked(tls_cert=ours.certificate, tls_key=ours.key)
    with serving(configured(FastAPI(), settings)) as (port, _), call(port), call(port), call(port) as third:
        assert all_of(third) == 0


def test_closed_connection_frees_its_place_for_another_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "max_connections", lambda: 1)
    with serving() as (port, server):
        for _ in range(5):
            with call(port) as one:
                one.sendall(ASK)
                assert one.recv(12) == b"HTTP/1.1 200"
            until(lambda: not server.server_state.connections, what="its end")
