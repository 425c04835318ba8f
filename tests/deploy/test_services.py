"""The services of docker-compose.yml as real processes: access rights, and the path of an alert."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from clickhouse_driver import Client
from clickhouse_driver.errors import ServerException

from telemetry.errors import UsageError
from telemetry.stores.queries import Runs
from telemetry.wire.client import CollectorClient
from tests.deadline import until
from tests.deploy.compose_file import DEPLOY, ROOT
from tests.deploy.stack import SECRETS, SLOW_MACHINE_S, Stack, running_stack
from tests.scenarios.command import rankscope
from tests.telemetry.made_rows import numbered_spans, of_run

pytestmark = [pytest.mark.clickhouse, pytest.mark.alertmanager]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("stack")) as running:
        yield running


def ask(stack: Stack, user: str, password: str, sql: str, **settings: Any) -> list[Any]:
    client = Client("127.0.0.1", port=stack.database_port, user=user, password=password, connect_timeout=5)
    try:
        answer: list[Any] = client.execute(sql, settings=settings)
        return answer
    finally:
        client.disconnect()


def reader(stack: Stack, sql: str, **settings: Any) -> list[Any]:
    return ask(stack, "reader", SECRETS["CLICKHOUSE_READER_PASSWORD"], sql, **settings)


def test_write_token_allows_sending_and_rejects_queries(stack: Stack) -> None:
    with CollectorClient(stack.collector, SECRETS["RANKSCOPE_WRITE_TOKEN"]) as agent:
        assert agent.post("spans", of_run(numbered_spans(0, 20), "sent")).rows == 20
        with pytest.raises(UsageError, match="only write"):
            agent.read(Runs())


def test_read_token_allows_queries_and_rejects_sending(stack: Stack) -> None:
    with CollectorClient(stack.collector, SECRETS["RANKSCOPE_READ_TOKEN"]) as person:
        assert person.read(Runs()).column_names
        with pytest.raises(UsageError, match="only read"):
            person.post("spans", of_run(numbered_spans(0, 20), "not-sent"))


def test_dashboard_on_the_collector_requires_the_read_token(stack: Stack) -> None:
    assert httpx.get(stack.collector, trust_env=False, verify=False).status_code == 401
    answer = httpx.get(stack.collector, auth=("", SECRETS["RANKSCOPE_READ_TOKEN"]), trust_env=False, verify=False)
    assert answer.is_success
    assert "rankscope" in answer.text


def test_database_user_reader_can_only_read(stack: Stack) -> None:
    assert reader(stack, "SELECT count() FROM rankscope.migrations")[0][0] > 0
    assert reader(stack, "SELECT 1", max_execution_time=10) == [(1,)]
    for sql in (
        "INSERT INTO rankscope.migrations (number, name) VALUES (99, 'mine')",
        "ALTER TABLE rankscope.spans DROP COLUMN rank",
        "DROP TABLE rankscope.spans",
        "CREATE TABLE rankscope.mine (a UInt8) ENGINE = Memory",
        "SET readonly = 0",
    ):
        with pytest.raises(ServerException, match="readonly"):
            reader(stack, sql)


def test_database_rejects_empty_and_wrong_passwords(stack: Stack) -> None:
    for user, password in (("default", ""), ("reader", ""), ("rankscope", ""), ("rankscope", "guessed")):
        with pytest.raises(ServerException):
            ask(stack, user, password, "SELECT 1")


@pytest.mark.parametrize("service", ["collector", "alerts"])
def test_health_check_of_a_running_service_succeeds(stack: Stack, service: str) -> None:
    programs = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        stack.healthcheck(service), capture_output=True, env={"PATH": programs}, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_runs_command_reads_the_database_as_the_read_only_user(stack: Stack) -> None:
    address = f"clickhouse://reader@127.0.0.1:{stack.database_port}/rankscope"
    asked = rankscope("runs", "--store", address, RANKSCOPE_STORE_PASSWORD=SECRETS["CLICKHOUSE_READER_PASSWORD"])
    assert asked.status == 0, asked.error


def test_slow_rank_alert_reaches_alertmanager(stack: Stack) -> None:
    tokens = {name: SECRETS[name] for name in ("RANKSCOPE_WRITE_TOKEN", "RANKSCOPE_READ_TOKEN")}
    slow = ["--fault", "slow:rank=5,factor=1.6", "--steps", "60", "--name", "monday"]
    stored = rankscope("simulate", *slow, "--store", stack.collector, **tokens)
    assert stored.status == 0, stored.error
    url = f"{stack.alertmanager}/api/v2/alerts"

    def alert_arrived() -> bool:
        assert stack.parts["alerts"].running, stack.parts["alerts"].said()
        labels = [alert["labels"] for alert in httpx.get(url, trust_env=False, verify=False).json()]
        return any(label["alertname"] == "compute-straggler" and label["run_id"] == "monday" for label in labels)

    until(alert_arrived, seconds=SLOW_MACHINE_S, what="the alert at Alertmanager")


def test_service_logs_contain_no_secret(stack: Stack) -> None:
    for part in stack.parts.values():
        said = part.said()
        assert not any(secret in said for secret in SECRETS.values()), part.name


def test_alertmanager_inhibit_rules_match_the_alert_hooks_guide() -> None:
    guide = (ROOT / "docs/guides/alert-hooks.md").read_text()
    rules = yaml.safe_load((DEPLOY / "alertmanager/alertmanager.yml").read_text())["inhibit_rules"]
    assert [rules] == [
        block["inhibit_rules"] for block in map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", guide, re.S))
    ]
