"""Real parts that tests share."""

from collections.abc import Iterator

import pytest

from tests.clickhouse_server import ClickHouseServer, running_server


@pytest.fixture(scope="session")
def clickhouse_server() -> Iterator[ClickHouseServer]:
    with running_server() as server:
        yield server
