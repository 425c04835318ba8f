"""A collector that tests attack: `rankscope collect` with its dashboard, in a separate process."""

import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from telemetry.stores.queries import LAST_STEP, Runs, Spans
from telemetry.wire.client import CollectorClient
from telemetry.wire.codec import ARROW_TYPE
from tests.deadline import until
from tests.forkserver import Program
from tests.integration.processes import free_port, is_open

ANSWER_S = 60.0
KEPT = "kept"
"""The run that no attack may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacked:
    """The address and the state of an attacked collector."""

    url: str
    port: int
    process: subprocess.Popen[bytes] | Program
    log: Path
    token: str
    trusts: ssl.SSLContext | None

    def http(self, **settings: Any) -> httpx.Client:
        """An HTTP client without tokens."""
        return httpx.Client(
            base_url=self.url, verify=self.trusts or False, trust_env=False, timeout=ANSWER_S, **settings
        )

    def client(self) -> CollectorClient:
        """A regular client with the full token."""
        return CollectorClient(self.url, self.token)

    def post_batch(self, body: bytes, *, table: str = "spans", **headers: str) -> httpx.Response:
        with self.http() as http:
            return http.post(f"/v1/batches/{table}", content=body, headers={"Content-Type": ARROW_TYPE, **headers})

    def raw(self, request: bytes, *, seconds: float = ANSWER_S) -> bytes:
        """Send these bytes. Return the answer until the other side closes. Plain HTTP only."""
        with self.connected(seconds) as connection:
            connection.sendall(request)
            return received(connection)

    def connected(self, seconds: float = ANSWER_S) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=seconds)

    def alive(self) -> bool:
        with self.http() as http:
            return self.process.poll() is None and http.get("/healthz").status_code == httpx.codes.OK

    def rss_mib(self) -> float:
        """Memory that the process uses now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS"))

    def command_line(self) -> str:
        return Path(f"/proc/{self.process.pid}/cmdline").read_bytes().decode()

    def said(self) -> str:
        return self.log.read_text()

    def stored(self) -> dict[str, int]:
        """The number of runs, and the number of spans in run ``KEPT``."""
        with self.client() as client:
            kept = client.read(Spans(run_id=KEPT, attempt=0, first_step=0, last_step=LAST_STEP))
            return {"runs": client.read(Runs()).num_rows, "spans": kept.num_rows}


@contextmanager
def attacked(
    folder: Path, *options: str, trusts: Path | None = None, forks: bool = True, **environment: str
) -> Iterator[Attacked]:
    """A collector with its own store, which ends with the block. ``options`` are options of the command.

    Args:
        forks: fork it from a process that has already imported it, because that starts faster. Otherwise it has its
            own command line.
        trusts: certificate of the authority that signed the collector's certificate. The collector then serves https.
    """
    port, log = free_port(), folder / "collector.log"
    command = ["-m", "ui.cli", "collect", "--store", f"embedded:{folder / 'store'}", "--port", str(port), *options]
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("RANKSCOPE_")]:
            patch.delenv(name)
        process = Program(command, log, **environment) if forks else _started(command, log, environment)
    made = Attacked(
        url=f"{'https' if trusts else 'http'}://127.0.0.1:{port}",
        port=port,
        process=process,
        log=log,
        token=environment.get("RANKSCOPE_TOKEN", ""),
        trusts=ssl.create_default_context(cafile=str(trusts)) if trusts else None,
    )
    try:
        until(lambda: _answers(made), seconds=120, what="the collector")
        yield made
    finally:
        process.terminate()
        process.wait(30)


def _started(command: list[str], log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with log.open("ab") as sink:
        return subprocess.Popen([sys.executable, *command], stdout=sink, stderr=sink, env={**os.environ, **environment})


def received(connection: socket.socket) -> bytes:
    """All bytes until the other side closes or resets the connection."""
    chunks = []
    try:
        while chunk := connection.recv(65536):
            chunks.append(chunk)
    except ConnectionError:
        pass
    return b"".join(chunks)


def statuses(answer: bytes) -> list[int]:
    """The HTTP status of each response in ``answer``."""
    lines = answer.split(b"\r\n")
    return [int(line.split()[1]) for line in lines if line.startswith(b"HTTP/1.1 ") and line.split()[1] != b"100"]


def head(line: str, *headers: str) -> bytes:
    """The head of a request to loopback."""
    return "\r\n".join([f"{line} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]).encode("latin-1")


def _answers(made: Attacked) -> bool:
    assert made.process.poll() is None, made.said()
    try:
        return is_open(made.port) and made.alive()
    except httpx.HTTPError:
        return False
