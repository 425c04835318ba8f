"""A training of eight real ranks, seen through the dashboard that its user opens."""

import re
import subprocess
import sys
from collections.abc import Iterator
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, expect

from telemetry.ship.collector import listen
from tests.browser.on_page import click_bar, figure, region
from tests.deadline import until
from tests.scenarios.demo_run import DEMO_S, Demo

pytestmark = [pytest.mark.browser, pytest.mark.gloo, pytest.mark.timeout(DEMO_S + 120)]


@pytest.fixture(scope="module")
def dashboard(demo_of_a_slow_rank: Demo) -> Iterator[str]:
    """Address of `rankscope ui` over the store that the demo left."""
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    store = f"embedded:{demo_of_a_slow_rank.out / 'store'}"
    command = [sys.executable, "-m", "ui.cli", "ui", "--store", store, "--port", str(port)]
    with subprocess.Popen(command) as process:
        try:
            until(lambda: answers(f"http://127.0.0.1:{port}/"), seconds=60, what="the dashboard's start")
            yield f"http://127.0.0.1:{port}/"
        finally:
            process.terminate()


def answers(address: str) -> bool:
    try:
        with urlopen(address, timeout=5) as reply:
            return bool(reply.status == 200)
    except (URLError, TimeoutError):
        return False


def test_the_slow_rank_of_a_real_training_is_seen_and_clicked(page: Page, dashboard: str) -> None:
    page.goto(dashboard)
    page.get_by_role("link", name=re.compile("^demo-")).click()
    expect(region(page, "verdict")).to_contain_text(re.compile(r"rank 5 \(host .*, dp1 pp0 tp1\).*its peers"))
    page.get_by_role("link", name="Show timeline").click()
    click_bar(page, "timeline", "forward-compute")
    expect(region(page, "details")).to_contain_text("processor time")


def test_the_heat_map_of_a_real_training_marks_the_suspect(
    page: Page, dashboard: str, demo_of_a_slow_rank: Demo
) -> None:
    run_id = demo_of_a_slow_rank.answer["run"]
    page.goto(f"{dashboard}?view=heatmap&run={run_id}")
    expect(region(page, "heat-says")).to_contain_text("highest is rank 5")
    labels = figure(page, "cells").locator(".ytick text").all_text_contents()
    assert [label for label in labels if "suspect" in label] == [next(label for label in labels if "rank 5" in label)]
