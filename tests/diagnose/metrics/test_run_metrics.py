"""The metrics of runs: the figures that commands and pages show, few labels, and few queries."""

import threading
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from diagnose.alerts.alert import Alert, Phase, fingerprint_of
from diagnose.findings import Severity
from diagnose.metrics.reading import MAX_RUNS
from diagnose.metrics.run_metrics import EVERY_S, MAX_AGE_S, RunMetrics
from telemetry.errors import UnreachableError
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import Query, Reader, StoreReader
from telemetry.stores.queries import Spans
from tests.deadline import until
from tests.memory_store import memory_store
from tests.telemetry.made_rows import insert, made
from tests.ui.counting import Counting
from tests.ui.reported_alerts import made_alert, tell, tell_look
from tests.ui.synthetic_run import SyntheticRun
from ui.dashboard.data import Reads
from ui.dashboard.pages.runs.listing import run_list

NAME, NUM_STEPS = 'gpt "7b"\\n', 30
Key = tuple[str, frozenset[tuple[str, str]]]


class Clock:
    """Seconds, set by hand."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def run() -> SyntheticRun:
    return SyntheticRun(run_id=NAME)


@pytest.fixture(scope="module")
def store(run: SyntheticRun) -> Iterator[EmbeddedStore]:
    with memory_store() as store:
        run.introduce(store)
        run.advance(store, NUM_STEPS)
        run.beat(store, at_ns=run.now_ns)
        tell_look(store, NAME, at_ns=run.now_ns)
        for alert in alerts_of(run):
            tell(store, alert, at_ns=run.now_ns)
        yield store


def alerts_of(run: SyntheticRun) -> Iterator[Alert]:
    """Three stragglers, a resolved one, one that another alert explains, and two alerts of other kinds."""
    began_ns = run.started_ns
    straggler = made_alert(NAME, began_ns=began_ns, rank=5)
    yield from (straggler, made_alert(NAME, began_ns=began_ns, rank=1), made_alert(NAME, began_ns=began_ns, rank=4))
    yield made_alert(NAME, began_ns=began_ns, rank=6, phase=Phase.RESOLVED)
    yield replace(made_alert(NAME, began_ns=began_ns, rank=7), suppressed_by=straggler.fingerprint)
    yield made_alert(NAME, began_ns=began_ns, kind="gpu-error", phase=Phase.PENDING, severity=Severity.CRITICAL)
    invented = made_alert(NAME, began_ns=began_ns, kind="x" * 1000)
    yield replace(invented, fingerprint=fingerprint_of(invented.labels))


def metrics_of(reader: Reader, at_s: float) -> RunMetrics:
    return RunMetrics(reader, Clock(at_s), wait_s=60)


def scraped(metrics: RunMetrics) -> dict[Key, float]:
    """Samples by name and labels, as a monitoring system parses them."""
    registry = CollectorRegistry()
    registry.register(metrics)
    found = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value for family in found for sample in family.samples
    }


def key(name: str, **labels: str) -> Key:
    return name, frozenset(labels.items())


@pytest.fixture(scope="module")
def values(store: EmbeddedStore, run: SyntheticRun) -> dict[Key, float]:
    return scraped(metrics_of(StoreReader(store), run.now_ns / 1e9 + 5))


def test_step_time_mfu_goodput_and_state_match_the_list_of_runs(
    values: dict[Key, float], store: EmbeddedStore, run: SyntheticRun
) -> None:
    (row,) = run_list(Reads(StoreReader(store), Clock(run.now_ns / 1e9 + 5))).rows
    assert row.step_time is not None
    assert row.mfu is not None
    assert values[key("rankscope_step_duration_seconds", run=NAME)] == pytest.approx(row.step_time.mean / 1e9)
    assert values[key("rankscope_mfu_ratio", run=NAME)] == pytest.approx(row.mfu.mean)
    assert values[key("rankscope_goodput_ratio", run=NAME)] == pytest.approx(row.goodput)
    assert values[key("rankscope_run_step", run=NAME)] == row.last_step == NUM_STEPS - 1
    assert values[key("rankscope_run_ranks", run=NAME)] == row.num_ranks == 8
    states = {dict(labels)["state"]: value for (name, labels), value in values.items() if name == "rankscope_run_state"}
    assert states == {"live": 1, "not-shipping": 0, "ended": 0, "died": 0, "stalled": 0}


@pytest.mark.parametrize("stage", [Stage.FORWARD_COMPUTE, Stage.FORWARD_SEND, Stage.TP_ALL_GATHER])
def test_stage_time_is_the_time_in_a_step_averaged_over_the_ranks_with_the_stage(
    values: dict[Key, float], store: EmbeddedStore, stage: Stage
) -> None:
    asked = Spans(run_id=NAME, attempt=0, first_step=0, last_step=NUM_STEPS - 2, stages=(int(stage),))
    spans = StoreReader(store).read(asked)
    num_ranks = len(spans["rank"].unique())
    assert num_ranks == (4 if stage is Stage.FORWARD_SEND else 8)
    expected_s = sum(spans["duration_ns"].to_pylist()) / num_ranks / (NUM_STEPS - 1) / 1e9
    assert values[key("rankscope_stage_duration_seconds", run=NAME, stage=stage.label)] == pytest.approx(expected_s)


def test_open_alerts_are_counted_by_kind_severity_and_state(values: dict[Key, float], run: SyntheticRun) -> None:
    counted = [(dict(labels), value) for (name, labels), value in values.items() if name == "rankscope_alerts"]
    assert {(labels["kind"], labels["severity"], labels["state"]): value for labels, value in counted} == {
        ("compute-straggler", "warning", "firing"): 3,
        ("gpu-error", "critical", "pending"): 1,
        ("unknown", "warning", "firing"): 1,
    }  # fmt: skip
    checked_s = values[key("rankscope_alerts_last_check_timestamp_seconds", run=NAME)]
    assert checked_s == pytest.approx(run.now_ns / 1e9)


def test_no_metric_has_a_label_for_a_rank_or_host(values: dict[Key, float]) -> None:
    labels = {name for _, pairs in values for name, _ in pairs}
    assert labels == {"run", "state", "stage", "kind", "severity"}


def test_the_largest_runs_have_metrics_and_the_others_are_counted(embedded: EmbeddedStore) -> None:
    small = [("large", rank, 1) for rank in range(8)] + [(f"small-{number:02d}", 0, 2) for number in range(25)]
    for name, rank, started_s in small:
        row = {"rank": rank, "started_ns": started_s * 10**9, "dp_size": 8}
        insert(embedded, "ranks", made("ranks", [row]), run_id=name)
    values = scraped(metrics_of(StoreReader(embedded), 3.0))
    named = {dict(labels)["run"] for name, labels in values if name == "rankscope_run_ranks"}
    assert len(named) == MAX_RUNS
    assert "large" in named
    assert values[key("rankscope_recent_runs")] == 26
    assert values[key("rankscope_recent_runs_without_metrics")] == 26 - MAX_RUNS


def test_a_run_without_data_for_an_hour_has_no_metrics(store: EmbeddedStore, run: SyntheticRun) -> None:
    values = scraped(metrics_of(StoreReader(store), run.now_ns / 1e9 + 3601))
    assert {name for name, labels in values if dict(labels).get("run")} == set()
    assert values[key("rankscope_recent_runs")] == 0


def test_repeated_scrapes_query_the_store_once_in_an_interval(store: EmbeddedStore, run: SyntheticRun) -> None:
    clock = Clock(0.0)
    reader = Counting(StoreReader(store))
    metrics = RunMetrics(reader, Clock(run.now_ns / 1e9), clock, wait_s=60)
    first = scraped(metrics)
    once = reader.asked.total()
    assert once < 20
    assert all(scraped(metrics) == first for _ in range(100))
    assert reader.asked.total() == once
    clock.now_s += EVERY_S
    scraped(metrics)
    assert reader.asked.total() == 2 * once


class Switched:
    """A reader that can be blocked and can fail."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.fails = False
        self.num_failed = 0

    def read(self, query: Query) -> pa.Table:
        assert self.may_answer.wait(60)
        if self.fails:
            self.num_failed += 1
            raise UnreachableError("no store", hint="start it")
        return self._reader.read(query)


def test_a_scrape_does_not_wait_for_a_store_that_does_not_answer(store: EmbeddedStore, run: SyntheticRun) -> None:
    clock, reader = Clock(0.0), Switched(StoreReader(store))
    metrics = RunMetrics(reader, Clock(run.now_ns / 1e9), clock, wait_s=0.0)
    step = key("rankscope_run_step", run=NAME)
    reader.may_answer.clear()
    assert step not in scraped(metrics)
    reader.may_answer.set()
    until(lambda: step in scraped(metrics), what="the first values")
    clock.now_s += EVERY_S
    reader.may_answer.clear()
    assert step in scraped(metrics)
    clock.now_s += MAX_AGE_S
    assert step not in scraped(metrics)
    reader.may_answer.set()


def test_failing_store_is_reported_once_and_old_values_expire(
    store: EmbeddedStore, run: SyntheticRun, capfd: pytest.CaptureFixture[str]
) -> None:
    clock, reader = Clock(0.0), Switched(StoreReader(store))
    metrics = RunMetrics(reader, Clock(run.now_ns / 1e9), clock, wait_s=60)
    step = key("rankscope_run_step", run=NAME)
    assert step in scraped(metrics)
    reader.fails = True
    for _ in range(3):
        clock.now_s += EVERY_S
        assert step in scraped(metrics)
    assert reader.num_failed == 3
    assert capfd.readouterr().err.count("the metrics of runs cannot be read: no store") == 1
    clock.now_s += MAX_AGE_S
    assert step not in scraped(metrics)
