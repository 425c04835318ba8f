"""Real parts that tests share."""

from collections.abc import Iterator

import pytest

from tests.clickhouse_server import ClickHouseServer, running_server
from tests.scenarios.demo_run import Demo, run_demo

COSTLY = "demo_of_a_slow_rank"
"""A fixture that takes so long to make that all files that need it run in one process."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs in one process, where several run side by side: a file."""
    costly = {item.path for item in items if COSTLY in getattr(item, "fixturenames", ())}
    for item in items:
        item.add_marker(pytest.mark.xdist_group(COSTLY if item.path in costly else str(item.path)))


@pytest.fixture(scope="session")
def clickhouse_server() -> Iterator[ClickHouseServer]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def demo_of_a_slow_rank(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The demo as it comes, trained and diagnosed once for all who look at it."""
    return run_demo(tmp_path_factory.mktemp("demo"))
