"""docker-compose.yml, alone and with deploy/open.yml, as compose itself reads it. This needs no container engine."""

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.compose_file import COMPOSE, OPEN, ROOT, blanks, services
from tests.deploy.stack import SECRETS
from tests.parts import require

ADDRESS = {
    "RANKSCOPE_ADDRESS": "192.0.2.7",
    "RANKSCOPE_TLS_CERT": "/etc/ssl/collector.pem",
    "RANKSCOPE_TLS_KEY": "/etc/ssl/collector.key",
    "RANKSCOPE_CA_FILE": "/etc/ssl/authority.pem",
}
"""The values in the `.env` of a user for agents on other machines, in addition to the secrets."""


def compose(*arguments: str, told: dict[str, str], files: tuple[Path, ...] = (COMPOSE,)) -> tuple[int, str, str]:
    """Status, output and error of a compose command. Its environment contains the variables of ``told`` only."""
    named = [word for path in files for word in ("--file", str(path))]
    done = subprocess.run(
        [require("docker-compose"), "--project-directory", str(ROOT), *named, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd="/",
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **told},
    )
    return done.returncode, done.stdout, done.stderr


def understood(*, told: dict[str, str], files: tuple[Path, ...] = (COMPOSE,)) -> dict[str, dict[str, Any]]:
    """Name -> service, for every profile."""
    status, output, error = compose("--profile", "demo", "config", told=told, files=files)
    assert status == 0, error
    found: dict[str, dict[str, Any]] = yaml.safe_load(output)["services"]
    for service in found.values():
        service.get("volumes", []).sort(key=str)  # compose prints them in any order
    return found


@cache
def closed() -> dict[str, dict[str, Any]]:
    """The services without open.yml."""
    return understood(told=SECRETS)


def test_compose_accepts_the_file_and_fills_in_the_secrets() -> None:
    found = closed()
    assert found.keys() == services().keys()
    assert found["collector"]["environment"]["RANKSCOPE_WRITE_TOKEN"] == SECRETS["RANKSCOPE_WRITE_TOKEN"]
    assert found["clickhouse"]["environment"]["READER_PASSWORD"] == SECRETS["CLICKHOUSE_READER_PASSWORD"]
    assert found["demo"]["depends_on"]["collector"]["condition"] == "service_healthy"


REQUIRED, *OTHERS = sorted({one.name for one in blanks(COMPOSE.read_text()) if one.required})


@pytest.mark.parametrize("name", [REQUIRED, *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)])
def test_compose_fails_and_names_the_secret_when_one_is_missing(name: str) -> None:
    status, _, error = compose("config", told={other: text for other, text in SECRETS.items() if other != name})
    assert status != 0
    assert name in error


def test_open_yml_adds_one_address_and_changes_only_the_services_that_it_lists() -> None:
    opened = understood(told=SECRETS | ADDRESS, files=(COMPOSE, OPEN))
    assert {name for name, service in closed().items() if service != opened[name]} == services(OPEN).keys()
    ports = [{str(port) for port in found["collector"]["ports"]} for found in (opened, closed())]
    addresses = ports[0] - ports[1]
    assert len(addresses) == 1
    assert ADDRESS["RANKSCOPE_ADDRESS"] in addresses.pop()
    assert opened["collector"]["healthcheck"]["test"][-1].count("https://") == 1
