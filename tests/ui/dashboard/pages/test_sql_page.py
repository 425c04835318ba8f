"""The SQL page on a real server: the rights of its user, the limits of a query, and the example queries."""

from collections.abc import Iterator

import httpx
import pytest
from clickhouse_driver import Client

from telemetry.errors import UsageError
from telemetry.stores import limited_sql
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Store, StoreReader
from telemetry.stores.limited_sql import LimitedSql
from telemetry.stores.open import open_store
from tests.clickhouse_server import PASSWORD, READER, SQL_USER, USER, ClickHouseServer
from tests.each_case import each_case
from tests.ui.served_dashboard import serving
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.data import Reads
from ui.dashboard.data.settings import ReadSettings
from ui.dashboard.pages.frame import draw_navigation
from ui.dashboard.pages.sql.page import draw_sql
from ui.dashboard.pages.sql.starting_points import starting_points
from ui.dashboard.serving.sql_route import VARIABLE, sql_from_environment
from ui.dashboard.view_state import View, ViewState

DATABASE = "asked"
STATE = ViewState(view=View.SQL, run="made")


@pytest.fixture(scope="module")
def served_store(clickhouse_server: ClickHouseServer) -> Iterator[Store]:
    store = open_store(clickhouse_server.url(DATABASE))
    run = SyntheticRun(run_id="made")
    run.introduce(store)
    run.advance(store, 3)
    yield store
    store.close()


@pytest.fixture(scope="module")
def sql(served_store: Store, clickhouse_server: ClickHouseServer) -> LimitedSql:
    return LimitedSql(clickhouse_server.url(DATABASE, user=SQL_USER))


@pytest.mark.clickhouse
def test_query_result_is_text_and_is_cut_at_the_limits(sql: LimitedSql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited_sql, "MAX_CELL", 20)
    answer = sql.run("SELECT count() AS spans, NULL, [1, 2], toString(groupArray(run_id)) FROM spans WHERE stage = 1")
    assert answer.columns[0] == ("spans", "UInt64")
    ((count, missing, numbers, long),) = answer.rows
    assert (count, missing, numbers, len(long or "")) == ("24", None, "[1, 2]", 20)
    many = sql.run("SELECT number FROM system.numbers LIMIT 5000")
    assert (len(many.rows), many.is_cut) == (limited_sql.MAX_ROWS, True)
    monkeypatch.setattr(limited_sql, "MAX_CHARACTERS", 50)
    assert len(sql.run("SELECT '0123456789' FROM system.numbers LIMIT 9").rows) == 5


@pytest.mark.clickhouse
@each_case(
    ("text", "words"),
    [
        ("INSERT INTO spans SELECT * FROM spans", "readonly"),
        ("DROP TABLE spans", "readonly"),
        ("CREATE TEMPORARY TABLE t (x UInt8)", "readonly"),
        ("SET readonly = 0", "readonly"),
        ("SELECT 1 SETTINGS max_result_bytes = 0", "readonly"),
        ("SELECT * FROM file('/etc/passwd', 'TSV', 'x String')", "readonly"),
        ("SELECT * FROM url('http://127.0.0.1:9/x', 'TSV', 'x String')", "readonly"),
        ("SELECT * FROM remote('127.0.0.1', system, one)", "readonly"),
        ("SYSTEM SHUTDOWN", "readonly"),
        ("SELECT 1; SELECT 2", "Syntax error"),
        ("SELEC", "Syntax error"),
        ("SELECT * FROM nothing", "nothing"),
        ("SELECT groupArray(toString(number)) FROM (SELECT number FROM system.numbers LIMIT 3000000)", "max bytes"),
        ("SELECT count() FROM system.numbers", "Timeout"),
        (" \n", "has 2 characters"),
        ("x" * 20_001, "has 20,001 characters"),
        ("SELECT '\ud800'", "surrogate"),
        ("SELECT sumState(1)", "Unknown type"),
    ],
)
def test_forbidden_or_invalid_query_raises_usage_error(sql: LimitedSql, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        sql.run(text)


@pytest.mark.clickhouse
def test_query_is_rejected_when_the_database_user_has_no_limits(
    clickhouse_server: ClickHouseServer, served_store: Store
) -> None:
    for user, problem in (
        (USER, "may write"),
        (READER, ": max_execution_time is 0, not 1 to 300, max_result_bytes is 0"),
    ):
        with pytest.raises(UsageError, match=problem) as refused:
            LimitedSql(clickhouse_server.url(DATABASE, user=user)).run("SELECT 1")
        assert "readonly = 1" in refused.value.hint
    client = Client("127.0.0.1", port=clickhouse_server.port, user=USER, password=PASSWORD)
    (queries,) = client.execute("SELECT count() FROM system.processes WHERE query = 'SELECT 1'")
    client.disconnect()
    assert queries == (0,)


@pytest.mark.clickhouse
def test_example_query_of_each_page_can_be_run(sql: LimitedSql, served_store: Store) -> None:
    points = starting_points(Reads(StoreReader(served_store)).newest(STATE))
    assert {point.view for point in points} >= {View.RUNS, View.OVERVIEW, View.HEAT_MAP, View.TIMELINE, View.HANG}
    found = {(point.view, point.what): sql.run(point.sql) for point in points}
    assert all(answer.columns for answer in found.values())
    assert len(found[View.OVERVIEW, "step time of each step"].rows) == 3


@pytest.mark.clickhouse
def test_sql_route_answers_valid_json_requests_and_rejects_others(
    clickhouse_server: ClickHouseServer, served_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, clickhouse_server.url(DATABASE, user=SQL_USER))
    with serving(StoreReader(served_store)) as address, httpx.Client(base_url=address, verify=False) as client:
        answer = client.post("sql", json={"sql": "SELECT 1 AS x"}).json()
        assert answer.pop("seconds") >= 0
        assert answer == {"columns": [{"name": "x", "type": "UInt8"}], "rows": [["1"]], "is_cut": False}
        for wrong in (b"", b"[]", b"{}", b'{"sql": 1}', b"\xff", b"[" * 100_000):
            refused = client.post("sql", content=wrong, headers={"Content-Type": "application/json"})
            assert (refused.status_code, set(refused.json())) == (400, {"error", "hint"})
        assert client.post("sql", content=b'{"sql": "SELECT 1"}').status_code == 415
        assert client.post("sql", json={"sql": "x" * 2**17}).status_code == 413
        assert client.get("sql").status_code == 404


def test_without_a_database_user_there_is_no_route_and_no_tab(store: EmbeddedStore, run: SyntheticRun) -> None:
    assert sql_from_environment({}) is None
    for wrong in ("embedded:folder", "http://127.0.0.1:8719", "clickhouse://"):
        with pytest.raises(UsageError):
            sql_from_environment({VARIABLE: wrong})
    with serving(StoreReader(store)) as address:
        assert httpx.post(f"{address}sql", json={"sql": "SELECT 1"}, verify=False).status_code in (404, 405)
    for has_sql in (False, True):
        reads = Reads(StoreReader(store), settings=ReadSettings(has_sql=has_sql))
        page, tabs = str(draw_sql(STATE, reads)), str(draw_navigation(STATE, reads))
        assert ("SQL is switched off" in page) is not has_sql
        assert ("SELECT" in page) is has_sql
        assert ("view=sql" in tabs) is has_sql
