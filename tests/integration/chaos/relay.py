"""A network that can be cut: a relay of TCP connections between two parts.

client ---> [relay] ---> one of the targets, in turn
             cut:    connections are reset, and new ones are refused
             halve:  only the first half of the next answer arrives, then a reset
"""

import itertools
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress

CHUNK_BYTES = 65536
CONNECT_S = 5.0
_RESET = struct.pack("ii", 1, 0)
Pair = tuple[socket.socket, socket.socket]


class Relay:
    """A relay that listens on its own port from its creation to ``close``."""

    def __init__(self, *targets: int) -> None:
        self.targets: Sequence[int] = targets
        self._turn = itertools.count()
        self._lock = threading.Lock()
        self._pairs: set[Pair] = set()
        self._is_cut = False
        self._halves = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def cut(self) -> None:
        self._is_cut = True
        with self._lock:
            for pair in self._pairs:
                _reset(pair)

    def mend(self) -> None:
        """Relay all connections again."""
        self._is_cut = self._halves = False

    def halve(self) -> None:
        """Reset the connection after half of the next answer."""
        self._halves = True

    def close(self) -> None:
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = None if self._is_cut else self._connect()
        if server is None:
            _reset((client,))
            client.close()
            return
        pair = client, server
        with self._lock:
            self._pairs.add(pair)
        answers = threading.Thread(target=self._pump, args=(server, client, True), daemon=True)
        answers.start()
        self._pump(client, server, False)
        answers.join()
        with self._lock:
            self._pairs.discard(pair)
        for end in pair:
            end.close()

    def _connect(self) -> socket.socket | None:
        """Connect to the next target in turn that answers."""
        first = next(self._turn)
        for number in range(len(self.targets)):
            with suppress(OSError):
                port = self.targets[(first + number) % len(self.targets)]
                made = socket.create_connection(("127.0.0.1", port), CONNECT_S)
                made.settimeout(None)
                return made
        return None

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while (data := source.recv(CHUNK_BYTES)) and not self._is_cut:
                if is_answer and self._halves:
                    self._halves = False
                    sink.sendall(data[: len(data) // 2])
                    break
                sink.sendall(data)
            else:
                sink.shutdown(socket.SHUT_WR)
                return
        _reset((source, sink))


def _reset(sockets: Sequence[socket.socket]) -> None:
    """Reset the connections. The other side gets an error at once, and blocked reads on this side end."""
    for one in sockets:
        with suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
