"""The services of docker-compose.yml as processes of this machine: their commands, their environments, their files.

Without containers, host names become 127.0.0.1 with free ports, and paths lie in a temporary folder. The database is
Debian's, which has fewer features: no constraints of settings, no retention.
"""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clickhouse_server import ClickHouseServer
from tests.deadline import until
from tests.deploy.compose_file import DEPLOY, environment, filled, services
from tests.integration.processes import Part, free_port
from tests.parts import require

SECRETS = {
    "CLICKHOUSE_PASSWORD": "3f9a77c1",
    "CLICKHOUSE_READER_PASSWORD": "b27e4d10",
    "RANKSCOPE_WRITE_TOKEN": "5d21c0aa",
    "RANKSCOPE_READ_TOKEN": "e80b63f4",
    "GRAFANA_PASSWORD": "90cc1d7e",
}
"""The values in the `.env` of a user."""
SLOW_MACHINE_S = 120
OURS = [sys.executable, "-m", "ui.cli"]
"""`rankscope`: the entry point of the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The addresses and processes of the services."""

    database_port: int
    collector: str
    alertmanager: str
    folder: Path
    parts: Mapping[str, Part]
    names: Mapping[str, str]

    def healthcheck(self, service: str) -> list[str]:
        """The command of a service's health check, for this machine."""
        kind, *words = services()[service]["healthcheck"]["test"]
        words = [_here(filled(word, SECRETS), self.names) for word in words]
        return ["sh", "-c", *words] if kind == "CMD-SHELL" else words


@contextmanager
def running_stack(folder: Path) -> Iterator[Stack]:
    """Start database, Alertmanager, collector and watcher, each when the previous one is healthy. Stop all at exit."""
    manager = require("prometheus-alertmanager")
    collector_port, manager_port = free_port(), free_port()
    with ExitStack() as cleanup:
        database = cleanup.enter_context(_database())
        names = _names(folder, database.port, collector_port, manager_port)
        (folder / "alerts.toml").write_text(_here((DEPLOY / "alerts.toml").read_text(), names))
        collector, alertmanager = f"http://127.0.0.1:{collector_port}", f"http://127.0.0.1:{manager_port}"
        listen = f"--web.listen-address=127.0.0.1:{manager_port}"
        parts = {
            "alertmanager": _part("alertmanager", [manager], [listen], folder, names),
            "collector": _part("collector", OURS, ["--port", str(collector_port)], folder, names),
            "alerts": _part("alerts", OURS, [], folder, names),
        }
        well = {"alertmanager": f"{alertmanager}/-/ready", "collector": f"{collector}/healthz"}
        for name, part in parts.items():
            cleanup.callback(part.kill)
            part.start()
            if name in well:
                _wait_until_well(part, well[name])
        yield Stack(
            database_port=database.port,
            collector=collector,
            alertmanager=alertmanager,
            folder=folder,
            parts=parts,
            names=names,
        )


def _names(folder: Path, database_port: int, collector_port: int, manager_port: int) -> dict[str, str]:
    """Name in a container -> name on this machine."""
    return {
        "clickhouse:9000": f"127.0.0.1:{database_port}",
        "collector:8719": f"127.0.0.1:{collector_port}",
        "127.0.0.1:8719": f"127.0.0.1:{collector_port}",
        "alertmanager:9093": f"127.0.0.1:{manager_port}",
        "/etc/rankscope/alerts.toml": str(folder / "alerts.toml"),
        "/etc/alertmanager/alertmanager.yml": str(DEPLOY / "alertmanager/alertmanager.yml"),
        "/var/lib/rankscope": str(folder),
        "=/alertmanager": f"={folder / 'alertmanager'}",
    }


def environment_of(service: str, names: Mapping[str, str]) -> dict[str, str]:
    """The environment of the process of a service. Of this process it contains PATH only."""
    said = environment(service, SECRETS) if "environment" in services()[service] else {}
    said.pop("RANKSCOPE_RETENTION_DAYS", None)
    return {"PATH": os.environ["PATH"], "NO_COLOR": "1"} | {name: _here(text, names) for name, text in said.items()}


def _part(service: str, program: list[str], more: list[str], folder: Path, names: Mapping[str, str]) -> Part:
    words: list[Any] = services()[service]["command"]
    told = [f"{name}={text}" for name, text in environment_of(service, names).items()]
    return Part(
        service,
        ["env", "--ignore-environment", *told, *program, *(_here(word, names) for word in words), *more],
        folder / f"{service}.log",
    )


def _here(text: str, names: Mapping[str, str]) -> str:
    for theirs, ours in names.items():
        text = text.replace(theirs, ours)
    return text


def _wait_until_well(part: Part, url: str) -> None:
    def answers() -> bool:
        assert part.running, part.said()
        try:
            return httpx.get(url, trust_env=False, timeout=5, verify=False).is_success
        except httpx.TransportError:
            return False

    until(answers, seconds=SLOW_MACHINE_S, what=part.name)


@contextmanager
def _database() -> Iterator[ClickHouseServer]:
    """Debian's server with the users of the deployment, and their passwords in its environment."""
    program = require("clickhouse-server")
    folder = Path(tempfile.mkdtemp(prefix="rankscope-deploy-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    server = ClickHouseServer(program, folder)
    (folder / "users.d").mkdir()
    users = (DEPLOY / "clickhouse/users.d/rankscope.xml").read_text()
    (folder / "users.d/rankscope.xml").write_text(_for_old_server(users))
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, text in environment("clickhouse", SECRETS).items():
                patch.setenv(name, text)
            server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _for_old_server(users: str) -> str:
    """The users for ClickHouse 18.16: the old name of the root element, and no constraints of settings."""
    return re.sub(r"<constraints>.*</constraints>", "", users, flags=re.S).replace("clickhouse>", "yandex>")
