"""deploy/open.yml: connections of remote agents and of the health check to the collector with TLS."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from telemetry.errors import UnreachableError
from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.deploy.compose_file import OPEN, services
from tests.deploy.stack import SECRETS, SLOW_MACHINE_S
from tests.integration.processes import Part, free_port, is_open
from tests.parts import require
from tests.telemetry.made_rows import numbered_spans, of_run

TOKEN = SECRETS["RANKSCOPE_WRITE_TOKEN"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a self-signed certificate, `tls.crt`, and its key, `tls.key`."""
    folder = tmp_path_factory.mktemp("tls")
    names = "subjectAltName=IP:127.0.0.1,DNS:collector"
    subprocess.run(
        [require("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", "tls.key", "-out", "tls.crt", "-days", "2", "-subj", "/CN=collector", "-addext", names],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def port(certificate: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of a collector with an empty store and the environment that the file adds."""
    chosen, folder = free_port(), tmp_path_factory.mktemp("collector")
    added = services(OPEN)["collector"]["environment"]
    told = {name: path.replace("/etc/rankscope", str(certificate)) for name, path in added.items()}
    told |= {"RANKSCOPE_WRITE_TOKEN": TOKEN, "PATH": os.environ["PATH"]}
    command = [
        sys.executable,
        "-m",
        "ui.cli",
        "collect",
        "--store",
        "embedded:",
        "--host",
        "0.0.0.0",
        "--no-dashboard",
    ]
    pairs = [f"{name}={value}" for name, value in told.items()]
    part = Part("collector", ["env", "--ignore-environment", *pairs, *command, "--port", str(chosen)], folder / "log")
    part.start()
    try:
        until(lambda: is_open(chosen) or not part.running, what="the collector", seconds=SLOW_MACHINE_S)
        assert part.running, part.said()
        until(lambda: _health(chosen) == 0, what="its health check", seconds=SLOW_MACHINE_S)
        yield chosen
    finally:
        part.kill()


def _health(port: int) -> int:
    """Exit status of the health check that the file defines."""
    _, _, *words = services(OPEN)["collector"]["healthcheck"]["test"]
    command = [sys.executable, *(word.replace(":8719", f":{port}") for word in words)]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode


@pytest.mark.long
def test_health_check_of_open_yml_uses_tls_and_fails_without_a_collector(port: int) -> None:
    assert _health(port) == 0
    assert _health(free_port()) != 0


def test_agent_with_the_certificate_authority_sends_spans(
    port: int, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKSCOPE_CA_FILE", str(certificate / "tls.crt"))
    with CollectorClient(f"https://127.0.0.1:{port}", TOKEN) as agent:
        assert agent.post("spans", of_run(numbered_spans(0, 20))).rows == 20


def test_agent_without_the_certificate_authority_raises_unreachable_error(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RANKSCOPE_CA_FILE", raising=False)
    with CollectorClient(f"https://127.0.0.1:{port}", TOKEN) as agent, pytest.raises(UnreachableError):
        agent.post("spans", of_run(numbered_spans(20, 20)))


def test_collector_rejects_requests_without_tls(port: int) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False, verify=False)
