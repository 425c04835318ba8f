"""Real parts that tests share."""

from collections.abc import Iterator

import pytest

from tests.clickhouse_server import ClickHouseServer, running_server
from tests.scenarios.demo_run import Demo, run_demo


@pytest.fixture(scope="session")
def clickhouse_server() -> Iterator[ClickHouseServer]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def demo_of_a_slow_rank(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The demo as it comes, trained and diagnosed once for all who look at it."""
    return run_demo(tmp_path_factory.mktemp("demo"))
