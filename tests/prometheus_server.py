"""Debian's Prometheus as a private process: its own folder, port and configuration, ended by its pid."""

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.deadline import until
from tests.parts import require

_CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: rankscope
    authorization: {{credentials: "{token}"}}
    static_configs: [{{targets: ["{target}"]}}]
"""


class Prometheus:
    """A server that scrapes one address each second."""

    def __init__(self, url: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self._http = httpx.Client(base_url=url, trust_env=False, verify=False)
        self._process = process
        self._log = log

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Labels and value of each series, for an instant query: ``{"metric": {...}, "value": [time, text]}``."""
        answer = self._http.get("/api/v1/query", params={"query": expression})
        assert answer.is_success, answer.text
        found: list[dict[str, Any]] = answer.json()["data"]["result"]
        return found

    def metadata(self) -> dict[str, str]:
        """Name -> type of each metric that the target exposes."""
        data = self._http.get("/api/v1/metadata").json()["data"]
        return {name: entries[0]["type"] for name, entries in data.items()}

    def is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        try:
            return self._http.get("/-/ready").is_success
        except httpx.TransportError:
            return False

    def close(self) -> None:
        self._http.close()


@contextmanager
def running_prometheus(target: str, token: str = "") -> Iterator[Prometheus]:
    """A running Prometheus that scrapes ``target`` (host:port); skips the test (fails it in CI) where the program is
    missing."""
    program = require("prometheus")
    folder = Path(tempfile.mkdtemp(prefix="rankscope-prometheus-"))
    (folder / "config.yml").write_text(_CONFIG.format(target=target, token=token))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    arguments = [
        f"--config.file={folder / 'config.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    log = folder / "output.log"
    with log.open("ab") as output:
        process = subprocess.Popen([program, *arguments], stdout=output, stderr=output)
    server = Prometheus(f"http://{address}", process, log)
    try:
        until(server.is_ready, seconds=60, what="Prometheus")
        yield server
    finally:
        server.close()
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
