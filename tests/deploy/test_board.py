"""The Grafana board: each query returns rows of a stored run, in the engine that it is written for."""

import itertools
import re
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
import yaml

from telemetry.host_metrics import Metric
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from tests.deploy.board import Question, Window, questions, read_board, written_out
from tests.deploy.compose_file import DEPLOY, services
from tests.diagnose.alerts.made_store import put_beats, put_run
from tests.each_case import Test, each_case
from tests.memory_store import memory_store
from tests.telemetry.made_rows import insert, made

BOARD = read_board()
QUESTIONS = list(questions(BOARD))
RUN, OTHER = "50%(run)s of [monday], #1", "tuesday"
CHOSEN = {
    "run": [RUN],
    "attempt": ["0"],
    "stage": ["forward-compute", "backward-compute"],
    "metric": [str(Metric.GPU_TEMPERATURE_C)],
    "step": ["3"],
}
LISTS = ("table", "traces", "annotation")


def each(chosen: Callable[[Question], bool]) -> Callable[[Test], Test]:
    return each_case("question", filter(chosen, QUESTIONS))


each_question = each(lambda _: True)
of_a_run = each(lambda one: one.where != "variable run")
of_a_window = each(lambda one: one.kind in ("timeseries", "table", "annotation"))
graphs = each(lambda one: one.kind == "timeseries")


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedStore]:
    """Two runs of eight ranks that ended a moment ago, with host samples, host events and a mark."""
    with memory_store() as store:
        for run in (RUN, OTHER):
            put_run(store, run, num_steps=6)
            put_beats(store, run, ended=False)
            now = {"at_ns": time.time_ns() - 1_000_000_000}
            sample = {"host": "gpu-000", "device": "gpu0", "metric": CHOSEN["metric"][0], "value": 61.0, **now}
            insert(store, "host_samples", made("host_samples", [sample]), run_id=run)
            event = {"host": "gpu-000", "device": "eth0", "name": "link-down", **now}
            insert(store, "host_events", made("host_events", [event]), run_id=run)
            insert(store, "marks", made("marks", [{"rank": 1, "name": "restart", **now}]), run_id=run)
        yield store


def ask(store: EmbeddedStore, question: Question, **chosen: list[str]) -> pa.Table:
    now_s = int(time.time())
    window = Window(first_s=now_s - 3600, last_s=now_s + 60)
    return store.query(written_out(question.sql, CHOSEN | chosen, window))


@each_question
def test_board_query_returns_rows_of_the_selected_run(store: EmbeddedStore, question: Question) -> None:
    answer = ask(store, question)
    assert answer.num_rows > 0
    assert answer.column(0)[0].as_py() is not None


@of_a_run
def test_board_query_returns_nothing_or_zero_for_an_unknown_run(store: EmbeddedStore, question: Question) -> None:
    answer = ask(store, question, run=["' OR 1 = 1 --"])
    if question.kind == "stat":
        assert str(answer.column(0)[0]).startswith(("0", "1970"))
    else:
        assert answer.num_rows == 0


@of_a_window
def test_board_query_returns_no_rows_outside_the_selected_time_window(store: EmbeddedStore, question: Question) -> None:
    window = Window(first_s=1_000_000, last_s=1_000_600)
    assert store.query(written_out(question.sql, CHOSEN, window)).num_rows == 0


@each_question
def test_board_query_limits_its_number_of_rows(question: Question) -> None:
    """A graph has one point per bucket. A list has a LIMIT."""
    if question.kind in LISTS:
        assert re.search(r" LIMIT \d+$", question.sql)
    elif question.kind == "timeseries":
        assert "GROUP BY time" in question.sql
        assert "$__timeInterval" in question.sql


@graphs
def test_graph_query_returns_the_time_column_first_and_in_ascending_order(
    store: EmbeddedStore, question: Question
) -> None:
    answer = ask(store, question)
    times = answer["time"].to_pylist()
    assert answer.column_names[0] == "time"
    assert times == sorted(times)


def test_trace_panel_uses_the_same_ids_as_otel_traces(store: EmbeddedStore) -> None:
    (question,) = (one for one in QUESTIONS if one.kind == "traces")
    shown = ask(store, question)
    known = store.query(
        "SELECT SpanId, ParentSpanId, TraceId, SpanName FROM otel_traces WHERE ServiceName = %(run)s", {"run": RUN}
    ).to_pylist()
    by_id = {row["SpanId"]: row for row in known}
    for row in shown.to_pylist():
        same = by_id[row["spanID"]]
        assert (row["traceID"], row["parentSpanID"], row["operationName"]) == (
            same["TraceId"],
            same["ParentSpanId"],
            same["SpanName"],
        )
    assert len(set(shown["traceID"].to_pylist())) == 1
    assert len(set(shown["serviceName"].to_pylist())) == 8


def test_stage_variable_lists_exactly_the_stages_of_the_vocabulary() -> None:
    (stage,) = (one for one in BOARD["templating"]["list"] if one["name"] == "stage")
    assert stage["query"].split(",") == [one.label for one in Stage]
    (question,) = (one for one in QUESTIONS if one.kind == "traces")
    codes, labels = re.findall(r"\[[^\]]*\]", question.sql)[:2]
    assert yaml.safe_load(codes) == [int(one) for one in Stage]
    assert yaml.safe_load(labels) == [one.label for one in Stage]


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for one, other in itertools.combinations([panel["gridPos"] for panel in BOARD["panels"]], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or apart
        assert one["x"] + one["w"] <= 24


def test_board_uses_only_the_provisioned_data_source_with_the_read_only_user() -> None:
    (source,) = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/clickhouse.yml").read_text())["datasources"]
    uids = re.findall(r"'uid': '([^']+)'", str([BOARD["panels"], BOARD["annotations"], BOARD["templating"]]))
    assert set(uids) == {source["uid"]}
    assert source["jsonData"]["username"] == "reader"
    assert source["secureJsonData"] == {"password": "$CLICKHOUSE_READER_PASSWORD"}
    assert "CLICKHOUSE_READER_PASSWORD" in services()["grafana"]["environment"]
    plugin = services()["grafana"]["environment"]["GF_PLUGINS_PREINSTALL_SYNC"]
    assert re.fullmatch(re.escape(source["type"]) + r"@\d+\.\d+\.\d+", plugin)


def test_board_is_mounted_where_grafana_loads_it() -> None:
    (provider,) = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/rankscope.yml").read_text())["providers"]
    folder = provider["options"]["path"]
    grafana = services()["grafana"]
    assert f"./deploy/grafana/boards:{folder}:ro" in grafana["volumes"]
    assert grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == f"{folder}/rankscope.json"
