"""Follows docs/guides/find-the-culprit.md click by click, on runs whose names do not reveal the fault."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from playwright.sync_api import Page, expect

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.browser.on_page import region, told_by_timeline
from tests.parts import require, require_root
from tests.scenarios.unlabelled_runs import FAULTS, Unlabelled, drawn, make_runs, put_simulated
from tests.ui.culprit_guide import GUIDE, MOST_CLICKS, click, clicks_by_fault, open_overview
from tests.ui.served_dashboard import serving

SEED = 7
CLICKS = clicks_by_fault(GUIDE.read_text())
BACKWARDS = "timeline.spans({stage: 'backward-compute'}).map(timeline.where)"
COLLECTIVE = re.compile("never entered [a-z-]+ #[0-9]+ of [a-z]+")


SAID = {
    "slow rank": "compute-straggler",
    "slow stage": "stage-imbalance",
    "long sequences": "the times of microbatches vary by",
    "flap": "nic-flap",
    "hang": "hung-collective",
    "healthy": "No finding",
}
"""Fault -> the text that the verdict on the Overview contains."""


def culprit(run: Unlabelled) -> list[str | re.Pattern[str]]:
    """The texts that must be on the screen at the end."""
    match run.fault:
        case "slow rank":
            return [f"rank {run.rank} (host {run.host}"]
        case "slow stage":
            return [f"Pipeline stage pp{run.pp} causes most of the slowdown, on all its replicas"]
        case "flap":
            return [re.compile(f"{run.device} lost its link"), run.host]
        case "hang":
            return [f"rank {run.rank} is behind", COLLECTIVE, run.host]
        case "long sequences":
            return ["replicas of rank"]
        case _:
            return ["No rank is slower than its peers"]


def find(page: Page, address: str, run: Unlabelled) -> None:
    """Follow the guide from the Overview to the culprit."""
    open_overview(page, address, run)
    expect(region(page, "verdict")).to_contain_text(SAID[run.fault])
    for name in CLICKS[run.fault]:
        click(page, name)
    for words in culprit(run):
        expect(page.get_by_role("main").get_by_text(words).first).to_be_in_viewport()
    if run.fault == "long sequences":
        widths = sorted(box["width"] for box in told_by_timeline(page, BACKWARDS) if box)
        assert widths[-1] > 2 * median(widths)


def test_guide_needs_at_most_three_clicks_to_each_culprit() -> None:
    clicks = {fault: CLICKS[fault] for fault in FAULTS}
    assert clicks["healthy"] == []
    assert all(1 <= len(names) <= MOST_CLICKS for fault, names in clicks.items() if fault != "healthy")


@pytest.mark.browser
def test_guide_leads_to_the_slow_stage(page: Page, address: str, store: EmbeddedStore) -> None:
    run = next(one for one in drawn(SEED) if one.fault == "slow stage")
    put_simulated(run, store, SEED)
    find(page, address, run)


@pytest.fixture(scope="module")
def six(tmp_path_factory: pytest.TempPathFactory, second_site: socket.socket) -> Iterator[tuple[str, list[Unlabelled]]]:
    """Address of the dashboard of six runs, and the fault of each."""
    require_root("network namespaces")
    require("ip")
    folder: Path = tmp_path_factory.mktemp("six")
    runs = make_runs(folder, SEED)
    store = EmbeddedStore(folder / "store")
    try:
        with serving(StoreReader(store), second_site) as address:
            yield address, runs
    finally:
        store.close()


@pytest.mark.long
@pytest.mark.netns
@pytest.mark.gloo
@pytest.mark.browser
@pytest.mark.timeout(900)
@pytest.mark.parametrize("fault", FAULTS)
def test_guide_leads_to_the_culprit_of_an_unlabelled_run(
    page: Page, six: tuple[str, list[Unlabelled]], fault: str
) -> None:
    address, runs = six
    run = next(one for one in runs if one.fault == fault)
    find(page, address, run)
    if fault == "healthy":
        expect(region(page, "findings")).to_contain_text("None.")
