"""A worker server like torch's (WorkerServer.cpp), in Python: the names of its handlers, and their answers."""

import json
import socketserver
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path

Answer = bytes | Callable[[], bytes]


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 32


def serve_handlers(path: Path, answers: Mapping[str, Answer]) -> Callable[[], None]:
    """Serve in a thread. ``answers``: by name of the handler; a function may block. Return a function that stops it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(json.dumps(sorted(answers)).encode() if self.path == "/handler/" else None)

        def do_POST(self) -> None:
            found = answers.get(self.path.removeprefix("/handler/"))
            self._answer(found() if callable(found) else found)

        def _answer(self, body: bytes | None) -> None:
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            pass

    server = _Server(str(path), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # the client has disconnected
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def end() -> None:
        server.shutdown()
        server.server_close()

    return end
