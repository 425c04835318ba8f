"""The demo: its verdict, and its eight real ranks on the dashboard."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.on_page import click_span, figure, region
from tests.deadline import until
from tests.forkserver import Program
from tests.integration.processes import free_port, is_open
from tests.scenarios.command import rankscope
from tests.scenarios.demo_run import DEMO_S, Demo

pytestmark = pytest.mark.timeout(DEMO_S + 120)


@pytest.mark.gloo
def test_the_demo_names_the_rank_that_was_slowed(demo_of_a_slow_rank: Demo) -> None:
    demo = demo_of_a_slow_rank
    assert demo.findings == [("compute-straggler", [5])]
    assert demo.answer["truth"]["rank"] == 5
    assert demo.answer["findings"][0]["summary"].startswith("rank 5 (host ")
    assert demo.loss_falls


@pytest.mark.gloo
def test_diagnose_of_the_demo_store_prints_the_same_verdict(demo_of_a_slow_rank: Demo) -> None:
    verdict = demo_of_a_slow_rank.answer["findings"][0]["summary"]
    answer = rankscope("diagnose", "--store", f"embedded:{demo_of_a_slow_rank.out / 'store'}")
    assert (answer.status, answer.out.splitlines()[0]) == (1, verdict)


@pytest.fixture(scope="module")
def dashboard(demo_of_a_slow_rank: Demo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of `rankscope ui` with the store of the demo."""
    port, log = free_port(), tmp_path_factory.mktemp("dashboard") / "log"
    store = f"embedded:{demo_of_a_slow_rank.out / 'store'}"
    process = Program(["-m", "ui.cli", "ui", "--store", store, "--port", str(port)], log)
    try:
        until(lambda: is_open(port) or process.poll() is not None, seconds=60, what="the dashboard's start")
        assert process.poll() is None, log.read_text()
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.browser
def test_dashboard_of_a_real_training_names_the_slow_rank_and_shows_its_span(page: Page, dashboard: str) -> None:
    page.goto(dashboard)
    page.get_by_role("link", name=re.compile("^demo-")).click()
    expect(region(page, "verdict")).to_contain_text(re.compile(r"rank 5 \(host .*, dp1 pp0 tp1\).*its peers"))
    page.get_by_role("link", name="Show timeline").click()
    click_span(page, "forward-compute")
    expect(region(page, "details")).to_contain_text("processor time")


@pytest.mark.browser
@pytest.mark.long
def test_the_heat_map_of_a_real_training_marks_the_suspect(
    page: Page, dashboard: str, demo_of_a_slow_rank: Demo
) -> None:
    run_id = demo_of_a_slow_rank.answer["run"]
    page.goto(f"{dashboard}?view=heatmap&run={run_id}")
    expect(region(page, "heat-says")).to_contain_text("the slowest is rank 5")
    labels = figure(page, "cells").locator(".ytick text").all_text_contents()
    assert [label for label in labels if "suspect" in label] == [next(label for label in labels if "rank 5" in label)]
