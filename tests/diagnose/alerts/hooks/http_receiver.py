"""A receiver of notices on loopback. A test sets its behaviour: accept, refuse, hang, answer slowly, break off."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """One posted request."""

    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: Any


class HttpReceiver(ThreadingHTTPServer):
    """Answers with ``behaviour``. ``requests`` holds all posted requests, whatever the answer was."""

    # Maximum number of connections that wait to be accepted.
    request_queue_size = 64
    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.requests: list[Request] = []
        self.behaviour: Callable[[_Handler], None] = answers(200)
        self.behaviour_of_get: Callable[[_Handler], None] = answers(501)
        self.over = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: HttpReceiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append(Request(self.path, headers, json.loads(body)))
        with suppress(ConnectionError):
            self.server.behaviour(self)
        self.close_connection = True

    def do_GET(self) -> None:
        self.server.behaviour_of_get(self)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


def answers(status: int, body: bytes = b"ok", **headers: str) -> Callable[[_Handler], None]:
    """Sends the whole answer at once. ``Retry_After`` is the header ``Retry-After``."""

    def behave(handler: _Handler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return behave


def hangs(handler: _Handler) -> None:
    """Reads the request and does not answer."""
    handler.server.over.wait()


def drips_its_headers(handler: _Handler) -> None:
    _drip(handler, b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 10_000)


def drips_its_body(handler: _Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
    _drip(handler, b"x" * 10_000)


def breaks_off_in_its_body(handler: _Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\nhalf of")


def says_nothing_and_closes(handler: _Handler) -> None:
    pass


def _drip(handler: _Handler, words: bytes) -> None:
    for byte in words:
        handler.wfile.write(bytes([byte]))
        if handler.server.over.wait(0.02):
            return


@contextmanager
def http_receiver() -> Iterator[HttpReceiver]:
    """A receiver that accepts all requests until a test sets another behaviour."""
    server = HttpReceiver()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
