"""A collector is scraped by Prometheus, and its metrics follow the conventions of Prometheus and of OpenMetrics."""

import subprocess
import time
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from diagnose.metrics.run_metrics import RunMetrics
from telemetry.collector.server import create_app
from telemetry.collector.settings import CollectorSettings
from telemetry.stores.interface import StoreReader
from tests.deadline import until
from tests.each_case import each_case
from tests.memory_store import memory_store
from tests.parts import require
from tests.prometheus_server import running_prometheus
from tests.telemetry.served import serving
from tests.ui.reported_alerts import made_alert, tell
from tests.ui.synthetic_run import SyntheticRun

NAME, READ_TOKEN = "gpt", "r" * 32
OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


@pytest.fixture(scope="module")
def collector() -> Iterator[str]:
    """The address of a collector with a run that trains now."""
    run = SyntheticRun(run_id=NAME, started_ns=time.time_ns() - 60 * 10**9)
    settings = CollectorSettings.checked(read_token=READ_TOKEN)
    with memory_store() as store:
        run.introduce(store)
        run.advance(store, 20)
        tell(store, made_alert(NAME, began_ns=run.started_ns), at_ns=run.now_ns)
        app = create_app(store, settings)
        app.state.metrics.register(RunMetrics(StoreReader(store), wait_s=60))
        with serving(app) as url:
            yield url


def scrape(url: str, accept: str = "") -> httpx.Response:
    told = {"Authorization": f"Bearer {READ_TOKEN}"} | ({"Accept": accept} if accept else {})
    return httpx.get(f"{url}/metrics", headers=told, timeout=60, verify=False)


def test_both_formats_of_metrics_have_the_same_values(collector: str) -> None:
    text, open_metrics = scrape(collector), scrape(collector, OPEN_METRICS)
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert open_metrics.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    first, second = (
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in parse(answer.text)
            for sample in family.samples
            if not sample.name.startswith("process_")
        }
        for parse, answer in ((parse_text, text), (parse_open_metrics, open_metrics))
    )
    assert first == second
    assert ("rankscope_run_ranks", frozenset({("run", NAME)})) in first


@each_case("accept", ["text/plain;version=x", "application/openmetrics-text;version=x", "*/*", ","])
def test_unknown_accept_header_still_returns_metrics(collector: str, accept: str) -> None:
    assert "rankscope_run_ranks" in scrape(collector, accept).text


@pytest.mark.prometheus
def test_promtool_finds_no_violation_of_the_conventions(collector: str) -> None:
    checked = subprocess.run(
        [require("promtool"), "check", "metrics"],
        input=scrape(collector).text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.prometheus
def test_prometheus_scrapes_a_collector_with_the_read_token(collector: str) -> None:
    with running_prometheus(collector.removeprefix("http://"), READ_TOKEN) as prometheus:
        until(lambda: prometheus.query("rankscope_step_duration_seconds"), seconds=60, what="the first scrape")
        (step_time,) = prometheus.query("rankscope_step_duration_seconds")
        assert step_time["metric"]["run"] == NAME
        assert float(step_time["value"][1]) > 0
        (alerts,) = prometheus.query('sum by (run) (rankscope_alerts{state="firing"})')
        assert alerts["value"][1] == "1"
        types = prometheus.metadata()
        assert types["rankscope_stage_duration_seconds"] == "gauge"
        assert types["rankscope_records_lost"] == "counter"  # OpenMetrics names a counter without its suffix
