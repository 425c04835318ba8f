"""Debian's Alertmanager as a private process: its own folder, port and configuration, no cluster, ended by its pid."""

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
route:
  receiver: ours
  group_by: ['...']
  group_wait: 0s
  group_interval: 100ms
  repeat_interval: 1h
receivers:
  - name: ours
    webhook_configs:
      - url: {receiver}
"""


class Alertmanager:
    """A server that tells the webhook ``receiver`` of every alert by itself."""

    def __init__(self, program: str, folder: Path, receiver: str, more_config: str) -> None:
        self._program = program
        self._folder = folder
        (folder / "config.yml").write_text(_CONFIG.format(receiver=receiver) + more_config)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        self.url = f"http://{self._address}"
        self._http = httpx.Client(base_url=self.url, trust_env=False, verify=False)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = [
            f"--config.file={self._folder / 'config.yml'}",
            f"--storage.path={self._folder / 'data'}",
            f"--web.listen-address={self._address}",
            "--cluster.listen-address=",
            "--log.level=warn",
        ]
        with (self._folder / "output.log").open("ab") as output:
            self._process = subprocess.Popen([self._program, *arguments], stdout=output, stderr=output)
        until(self._answers, seconds=60, what="Alertmanager")

    def stop(self) -> None:
        """SIGKILL. Safe to repeat."""
        self._http.close()
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def alerts(self, **labels: str) -> list[dict[str, Any]]:
        """The alerts that it holds and that are not over, with these labels."""
        wanted = [f'{name}="{value}"' for name, value in labels.items()]
        answer = self._http.get("/api/v2/alerts", params={"filter": wanted})
        assert answer.is_success, answer.text
        found: list[dict[str, Any]] = answer.json()
        return found

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "output.log").read_text()[-2000:]
        try:
            return self._http.get("/-/ready").is_success
        except httpx.TransportError:
            return False


@contextmanager
def running_alertmanager(receiver: str, more_config: str = "") -> Iterator[Alertmanager]:
    """A running Alertmanager that posts to the address ``receiver``; skips the test (fails it in CI) where the program
    is missing."""
    program = require("prometheus-alertmanager")
    folder = Path(tempfile.mkdtemp(prefix="rankscope-alertmanager-"))
    server = Alertmanager(program, folder, receiver, more_config)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
