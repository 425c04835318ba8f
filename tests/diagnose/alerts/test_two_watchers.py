"""Two watchers check one store, each with its own file and clock. The findings log has each finding once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from diagnose.alerts.alert_store import AlertStore
from diagnose.alerts.notice import ErrorReports
from diagnose.alerts.reported import reported_in
from diagnose.alerts.watch import Watcher
from telemetry.errors import UnreachableError
from telemetry.finding_log import Action
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Query
from telemetry.stores.queries import AlertLooks, Alerts, FindingCount, Findings
from telemetry.wire.client import CollectorClient
from telemetry.wire.finding_action import FindingAction
from tests.diagnose.alerts.made_checks import quick
from tests.diagnose.alerts.made_store import put_beats, put_run
from tests.telemetry.served import collecting
from ui.cli.commands.alerts import alerts_app


class Connection:
    """The connection of one watcher to the collector."""

    def __init__(self, client: CollectorClient) -> None:
        self._client = client
        self.takes_rows = True

    def read(self, query: Query) -> pa.Table:
        return self._client.read(query)

    def post(self, table: str, rows: pa.Table) -> object:
        if not self.takes_rows:
            raise UnreachableError("busy", hint="none")
        return self._client.post(table, rows)


class Scene:
    """A collector over a run with a slow rank, and its watchers."""

    def __init__(self, store: EmbeddedStore, client: CollectorClient, folder: Path) -> None:
        self.store, self.client, self._folder = store, client, folder
        put_run(store, "monday", "slow:rank=5,factor=1.4", num_steps=20)
        put_beats(store, "monday", ended=False)

    @contextmanager
    def watcher(self, name: str) -> Iterator[tuple[Connection, Callable[[], None]]]:
        """The connection of a watcher to the collector, and a function that runs one check."""
        connection = Connection(self.client)

        @contextmanager
        def connected() -> Iterator[Connection]:
            yield connection

        with AlertStore(self._folder / f"{name}.sqlite") as alert_store:
            watcher = Watcher(
                open_reader=connected,
                alert_store=alert_store,
                policy=quick(keep_firing_for_s=0),
                dispatchers=(),
                error_reports=ErrorReports(print),
            )
            yield connection, lambda: watcher.check(1.0)

    def states(self) -> list[str]:
        rows = self.client.read(Findings()).to_pylist()
        assert sum(self.client.read(FindingCount())["findings"].to_pylist()) == len(rows)
        return [row["state"] for row in rows]

    def on_page_of_alerts(self) -> list[str]:
        rows, looks = (self.client.read(query).to_pylist() for query in (Alerts(), AlertLooks()))
        return [str(entry.alert.phase) for entry in reported_in(rows, looks).alerts]


@pytest.fixture
def scene(embedded: EmbeddedStore, tmp_path: Path) -> Iterator[Scene]:
    with collecting(embedded) as client:
        yield Scene(embedded, client, tmp_path)


def test_finding_of_two_watchers_is_logged_once_even_if_both_raise_it_at_the_same_time(scene: Scene) -> None:
    with scene.watcher("first") as (first, check_first), scene.watcher("second") as (_, check_second):
        first.takes_rows = False
        check_first()
        check_second()  # the row of the first watcher has not arrived yet
        first.takes_rows = True
        check_first()
        assert scene.states() == ["raised", "raised"]
        check_second()
        assert scene.states() == ["raised"]
        scene.client.act(FindingAction(fingerprint=fingerprint_of(scene), action=Action.ACKNOWLEDGE, who="Ada"))
        check_first()
        check_second()
        assert scene.on_page_of_alerts() == ["firing"]
        put_beats(scene.store, "monday", ended=True)
        check_second()
        assert scene.states() == ["resolved"]
        check_first()
        assert scene.states() == ["resolved"]
        assert scene.on_page_of_alerts() == ["resolved"]
    shown = CliRunner().invoke(alerts_app, ["log", "--store", scene.client.url, "--json"])
    assert '"total": 1' in shown.stdout
    assert shown.stdout.count('"fingerprint"') == 1
    assert "Ada" in shown.stdout


def test_watcher_with_a_lost_state_file_continues_the_finding_from_the_log(scene: Scene) -> None:
    with scene.watcher("lost") as (_, check):
        check()
    assert scene.states() == ["raised"]
    with scene.watcher("new") as (_, check):
        check()
        assert scene.states() == ["raised"]
        put_beats(scene.store, "monday", ended=True)
        check()
    assert scene.states() == ["resolved"]


def fingerprint_of(scene: Scene) -> str:
    (name,) = scene.client.read(Findings())["fingerprint"].to_pylist()
    return str(name)
