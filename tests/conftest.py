"""Real parts that tests share."""

import os
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from telemetry.process.quick_imports import quick_imports
from telemetry.stores.embedded import EmbeddedStore
from tests.clickhouse_server import ClickHouseServer, running_server
from tests.memory_store import close_idle, closed_before_a_folder, empty, memory_store
from tests.scenarios.demo_run import Demo, demo_in

settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")
OTHERS_NICENESS = 5
LONGEST_ID = 200
BROWSER_TESTS = Path(__file__).parent / "browser"
REAL_RANKS, BROWSER = LONG_GROUPS = ("real ranks", "browser")


class FailuresAtOnce:
    """Prints each failure when it occurs: a run that is ended before its summary still names its failures."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.ensure_newline()
            self._terminal.line(f"FAILED {report.nodeid} ({report.when}, {report.duration:.0f} s)")
            self._terminal.line(report.longreprtext)

    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Say how a worker ended that should not have: a signal, or an exit status."""
        if error:
            with suppress(Exception):  # the process is an internal of execnet
                self._terminal.line(f"exit status of {node.gateway.id}: {node.gateway._io.popen.wait(10)}")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(FailuresAtOnce(terminal))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Imports and tests create most objects of the process, and all of them stay: no collection looks at them."""
    with quick_imports():
        return (yield)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A short name for a large value: each report of a test has its name."""
    is_large = isinstance(val, (str, bytes)) and len(val) > LONGEST_ID
    return f"{argname} of {len(val)}" if is_large else None  # type: ignore[arg-type]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test to a group: the tests of a group run in one process, one after the other.

    Tests with real ranks are one group: two jobs on two cores take many times as long as one after the other, and look
    like stragglers to each other. Tests with a browser are one group, too: a browser uses both cores, and compiles the
    scripts of the dashboard only once. These groups take longest and start first. Each other group is a file.
    """
    groups = {item: _group_of(item) for item in items}
    items.sort(key=lambda item: LONG_GROUPS.index(groups[item]) if groups[item] in LONG_GROUPS else len(LONG_GROUPS))
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse a pytest-xdist that ignores groups: jobs would run beside each other, and fixtures of a file twice."""
    if session.config.getoption("loadgroup", False) and not all("@" in item.nodeid for item in session.items):
        raise pytest.UsageError("pytest-xdist does not group tests. Install the versions of constraints.txt")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let tests with real ranks have the processor first: theirs is the longest group, and they mostly wait."""
    if "PYTEST_XDIST_WORKER" in os.environ and not _has_real_ranks(item):
        os.nice(max(0, OTHERS_NICENESS - os.nice(0)))


def _group_of(item: pytest.Item) -> str:
    if _has_real_ranks(item):
        return REAL_RANKS
    return BROWSER if item.path.parent == BROWSER_TESTS else item.nodeid.partition("::")[0]


def _has_real_ranks(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("gloo", "netns"))


@pytest.fixture(scope="session")
def clickhouse_server() -> Iterator[ClickHouseServer]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def idle_stores() -> Iterator[None]:
    """Stores in memory are used again by all tests of a process."""
    with closed_before_a_folder():
        yield
    close_idle()


@pytest.fixture(scope="module")
def kept_store(idle_stores: None) -> Iterator[EmbeddedStore]:
    """In memory, so that many fit in one process."""
    with memory_store() as store:
        yield store


@pytest.fixture
def embedded(kept_store: EmbeddedStore) -> Iterator[EmbeddedStore]:
    """A store in memory that is empty."""
    yield kept_store
    empty(kept_store)


@pytest.fixture(scope="session")
def demo_of_a_slow_rank(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """The demo, trained and diagnosed once, also where tests run in several processes: a copy of it."""
    base = tmp_path_factory.getbasetemp()
    of_all = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    return demo_in(of_all / "demo-of-all").copied_to(tmp_path_factory.mktemp("demo") / "out")
