"""A new version upgrades old databases. An upgrade that is killed or runs twice at once loses no rows."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from clickhouse_driver import Client

from telemetry.errors import RankscopeError, UsageError
from telemetry.group_names import peer_of_mask
from telemetry.records import topology_in, topology_of
from telemetry.stages import SpanClock, Stage
from telemetry.stores.cluster import FIRST_MODERN, statements
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from telemetry.stores.migrations import SCHEMA
from telemetry.stores.open import MigratingStore, find_store, open_store
from telemetry.stores.queries import Ranks, RunGrids, Spans, StageCounts
from telemetry.topology import Topology
from tests.clickhouse_server import PASSWORD, USER, ClickHouseServer
from tests.forkserver import output_of
from tests.integration.old_database import NUM_SPANS, checksums, make_first, shape
from tests.scenarios.command import rankscope
from tests.telemetry.made_rows import made, owned

NUM_AT_ONCE = 4


def run(module: str, *arguments: str) -> Any:
    """The JSON that a module of tests prints."""
    return json.loads(output_of("-m", f"tests.integration.{module}", *arguments).splitlines()[-1])


@pytest.fixture
def in_memory() -> Iterator[MigratingStore]:
    store = EmbeddedStore()
    yield store
    store.close()


@pytest.fixture(scope="module")
def new_shape() -> list[list[Any]]:
    """The schema of a new database in memory."""
    store = EmbeddedStore()
    store.migrate()
    found = shape(store)
    store.close()
    return found


@pytest.fixture
def on_server(clickhouse_server: ClickHouseServer, request: pytest.FixtureRequest) -> Iterator[MigratingStore]:
    """An empty database with the name of the test."""
    store = find_store(clickhouse_server.url(make_database(clickhouse_server, request.node.originalname[:60])))
    yield store
    store.close()


def make_database(server: ClickHouseServer, name: str) -> str:
    with Client("127.0.0.1", port=server.port, user=USER, password=PASSWORD) as client:
        client.execute(f"DROP DATABASE IF EXISTS {name}")  # of the same test with other parameters
        client.execute(f"CREATE DATABASE {name}")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgraded:
    """A database that the first version made and this version upgraded, and how it was before and after."""

    engine: str
    """The fixture that gives an empty database of the same engine."""
    store: MigratingStore
    before: dict[str, list[int]]
    after: dict[str, list[int]]
    shape: list[list[Any]]


@pytest.fixture(scope="module", params=["in_memory", pytest.param("on_server", marks=pytest.mark.clickhouse)])
def upgraded(request: pytest.FixtureRequest) -> Iterator[Upgraded]:
    if request.param == "in_memory":
        store: MigratingStore = EmbeddedStore()
    else:
        server: ClickHouseServer = request.getfixturevalue("clickhouse_server")
        store = find_store(server.url(make_database(server, "upgraded")))
    make_first(store)
    before = checksums(store)
    store.migrate()
    yield Upgraded(engine=request.param, store=store, before=before, after=checksums(store), shape=shape(store))
    store.close()


def test_upgrade_from_the_first_version_loses_no_rows_and_queries_work(upgraded: Upgraded) -> None:
    assert upgraded.before["spans"][0] == 2 * NUM_SPANS
    assert upgraded.after == upgraded.before
    reader = StoreReader(upgraded.store)
    assert sum(reader.read(StageCounts(run_id="nightly", attempt=0))["spans"].to_pylist()) == NUM_SPANS
    ranks = reader.read(Ranks(run_id="it's", attempt=1))
    assert (ranks["opened_ns"].to_pylist(), ranks["mesh"].to_pylist()) == ([0] * 8, [""] * 8)
    assert topology_of(ranks) == Topology()
    spans = reader.read(Spans(run_id="nightly", attempt=0, first_step=0, last_step=100))
    assert set(spans["clock"].to_pylist()) == {SpanClock.HOST}


def test_upgraded_database_stores_meshes_clocks_and_groups(upgraded: Upgraded) -> None:
    store = upgraded.store
    mesh = Topology.parse("pp=2,dp_shard=2,tp=2")
    told = {"dp_size": 2, "pp_size": 2, "tp_size": 2, "mesh": str(mesh), "started_ns": 5}
    store.insert("ranks", owned(made("ranks", [{"rank": 0, **told}]), run_id="meshed"))
    group = {"stage": int(Stage.EP_ALL_TO_ALL), "peer": peer_of_mask(3), "clock": int(SpanClock.TRANSFER), "op_seq": 1}
    store.insert("spans", owned(made("spans", [{"rank": 0, "seq": 9000, "step": 7, **group}]), run_id="meshed"))
    reader = StoreReader(store)
    assert topology_of(reader.read(Ranks(run_id="meshed", attempt=0))) == mesh
    (row,) = reader.read(
        Spans(run_id="meshed", attempt=0, first_step=7, last_step=7, stages=(int(Stage.EP_ALL_TO_ALL),), limit=1)
    ).to_pylist()
    assert (row["peer"], row["clock"]) == (-5, SpanClock.TRANSFER)
    (grid,) = reader.read(RunGrids(run_ids=("meshed",))).to_pylist()
    assert topology_in(grid) == mesh


def test_upgraded_database_has_the_same_schema_as_a_new_one(upgraded: Upgraded, request: pytest.FixtureRequest) -> None:
    made_today: MigratingStore = request.getfixturevalue(upgraded.engine)
    made_today.migrate()
    assert shape(made_today) == upgraded.shape


def test_executing_the_plan_of_an_upgrade_from_before_profiles_and_findings_loses_no_rows(
    in_memory: MigratingStore, new_shape: list[list[Any]]
) -> None:
    make_first(in_memory, 12)
    before = checksums(in_memory)
    check_plan(in_memory)
    assert checksums(in_memory) == before
    assert shape(in_memory) == new_shape


@pytest.mark.parametrize(
    "is_old",
    [
        pytest.param(True, marks=pytest.mark.long, id="by the first version"),
        pytest.param(False, id="by this version"),
    ],
)
def test_a_store_whose_creation_was_interrupted_is_completed(
    in_memory: MigratingStore, new_shape: list[list[Any]], is_old: bool
) -> None:
    first = statements((SCHEMA / "0001_tables.sql").read_text(), FIRST_MODERN)
    for statement in first[:3] if is_old else in_memory.plan()[:9]:
        in_memory.database.execute(statement)
    in_memory.migrate()
    assert shape(in_memory) == new_shape


@pytest.mark.long
def test_upgrade_of_a_folder_completes_if_it_is_killed_after_every_statement(
    tmp_path: Path, in_memory: MigratingStore
) -> None:
    url = f"embedded:{tmp_path / 'store'}"
    before = run("old_database", "make", url)["checksums"]
    killed = run("migrator", url)
    assert killed["killed"] == killed["planned"] > len(list(SCHEMA.glob("0*.sql")))
    after = run("old_database", "tell", url)
    assert after["checksums"] == before
    in_memory.migrate()
    assert after["shape"] == shape(in_memory)


@pytest.mark.clickhouse
def test_upgrade_on_a_server_completes_if_it_is_killed_after_every_statement(
    clickhouse_server: ClickHouseServer, on_server: MigratingStore
) -> None:
    make_first(on_server)
    before = checksums(on_server)
    killed = run("migrator", clickhouse_server.url(on_server.database.name))
    assert killed["killed"] == killed["planned"] > len(list(SCHEMA.glob("0*.sql")))
    on_server.migrate()
    assert checksums(on_server) == before
    fresh = open_store(clickhouse_server.url("made_today"))
    assert shape(on_server) == shape(fresh)  # type: ignore[arg-type]
    fresh.close()


@pytest.mark.clickhouse
def test_collectors_that_migrate_at_the_same_time_all_succeed(
    clickhouse_server: ClickHouseServer,
) -> None:
    for number in range(3):
        url = clickhouse_server.url(f"at_once_{number}")
        failed: list[RankscopeError] = []

        def start(url: str = url, failed: list[RankscopeError] = failed) -> None:
            try:
                open_store(url).close()
            except RankscopeError as error:
                failed.append(error)

        threads = [threading.Thread(target=start) for _ in range(NUM_AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        store = find_store(url)
        applied = store.query("SELECT DISTINCT number FROM migrations ORDER BY number")["number"].to_pylist()
        assert applied == [int(path.name[:4]) for path in sorted(SCHEMA.glob("[0-9]*.sql"))]
        store.close()


@pytest.mark.clickhouse
def test_database_of_a_newer_version_is_refused_and_not_changed(
    clickhouse_server: ClickHouseServer, on_server: MigratingStore
) -> None:
    on_server.migrate()
    on_server.database.execute("INSERT INTO migrations (number, name) SELECT 9999, 'from the future'")
    before = shape(on_server)
    url = clickhouse_server.url(on_server.database.name)
    for for_reading in (False, True):
        with pytest.raises(UsageError, match=r"schema 9999.*\n\nhint: upgrade rankscope"):
            open_store(url, for_reading=for_reading)
    assert shape(on_server) == before


@pytest.mark.clickhouse
def test_reading_a_database_of_an_older_version_raises_an_error_that_suggests_migrate(
    clickhouse_server: ClickHouseServer, on_server: MigratingStore
) -> None:
    make_first(on_server)
    with pytest.raises(UsageError, match=r"lacks scripts 2, 3.*\n\nhint: `rankscope migrate`"):
        open_store(clickhouse_server.url(on_server.database.name), for_reading=True)
    assert not on_server.query("SELECT 1 FROM system.tables WHERE name = 'evidence' AND database = currentDatabase()")


@pytest.mark.clickhouse
def test_migrate_dry_run_prints_the_statements_and_changes_nothing(clickhouse_server: ClickHouseServer) -> None:
    url = clickhouse_server.url("dry")
    told = rankscope("migrate", "--dry-run", "--store", url)
    assert told.status == 0, told.error
    assert told.out.startswith("CREATE DATABASE IF NOT EXISTS dry;")
    assert "CREATE TABLE IF NOT EXISTS spans" in told.out
    with Client("127.0.0.1", port=clickhouse_server.port, user=USER, password=PASSWORD) as client:
        assert client.execute("SELECT count() FROM system.databases WHERE name = 'dry'") == [(0,)]
    assert PASSWORD not in told.out + told.error


def test_migrate_dry_run_does_not_create_a_missing_folder(tmp_path: Path) -> None:
    told = rankscope("migrate", "--dry-run", "--store", f"embedded:{tmp_path / 'store'}")
    assert told.status == 0, told.error
    assert "CREATE TABLE IF NOT EXISTS spans" in told.out
    assert not list(tmp_path.iterdir())


def test_migrate_dry_run_of_an_up_to_date_store_prints_no_statements(tmp_path: Path) -> None:
    store = f"embedded:{tmp_path / 'store'}"
    assert "upgraded, " in rankscope("migrate", "--store", store).error
    assert "already up to date" in rankscope("migrate", "--store", store).error
    told = rankscope("migrate", "--dry-run", "--store", store)
    assert (told.status, told.out) == (0, "")
    assert "up to date, nothing to run" in told.error


def test_migrate_refuses_the_address_of_a_collector() -> None:
    told = rankscope("migrate", "--store", "http://127.0.0.1:8719")
    assert told.status == 2
    assert "it creates and upgrades its tables when it starts" in told.error


@pytest.mark.clickhouse
def test_executing_the_plan_of_an_upgrade_on_a_server_gives_the_schema_of_a_migration(
    on_server: MigratingStore,
) -> None:
    make_first(on_server)
    check_plan(on_server)


def check_plan(store: MigratingStore) -> None:
    """Execute the plan of an upgrade, and check that it leaves nothing to a migration."""
    planned = store.plan()
    assert not any("CREATE TABLE IF NOT EXISTS spans" in statement for statement in planned)
    for statement in planned:
        store.database.execute(statement)
    before = shape(store)
    store.migrate()
    assert shape(store) == before
    assert len(store.plan()) < len(planned)
