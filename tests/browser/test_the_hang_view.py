"""The hang view in a real browser: from the overview to the rank that blocks the others."""

import pytest
from playwright.sync_api import Page, expect

from telemetry.stores.embedded import EmbeddedStore
from telemetry.topology import Topology
from tests.browser.on_page import click_cell, control, figure, figure_data, region, wait_until_drawn
from tests.deadline import until
from tests.ui.made_hang import FAULT, STEP, STUCK, S, evidence_rows
from tests.ui.mesh_runs import SLOWED, leave_evidence, put, simulated
from tests.ui.synthetic_run import SyntheticRun

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def stuck(store: EmbeddedStore, address: str) -> str:
    """Address of the hang view of a job in which rank 5 hangs in its data loader."""
    run = SyntheticRun(run_id="stuck", slow={})
    run.introduce(store)
    run.advance(store, STEP + 1)
    run.leave_evidence(store, evidence_rows(run.now_ns + 35 * S))
    return f"{address}?view=hang&run=stuck"


def test_the_overview_leads_to_the_rank_that_is_behind(page: Page, stuck: str) -> None:
    page.goto(stuck.replace("view=hang", "view=overview"))
    expect(region(page, "verdict")).to_contain_text("rank 5 is behind")
    expect(region(page, "findings")).to_contain_text("hung-collective")
    page.get_by_role("link", name="Show hang view").click()
    expect(region(page, "hang-verdict")).to_contain_text("rank 5 is behind")
    expect(region(page, "rank")).to_contain_text("Rank 5")
    expect(region(page, "rank")).to_contain_text("next_batch (loader.py:88)")
    expect(region(page, "rank")).to_contain_text(FAULT)


@pytest.mark.long
def test_click_on_a_victim_shows_its_waiting_chain_to_the_culprit(page: Page, stuck: str) -> None:
    page.goto(stuck)
    cells = figure_data(page, "grid", "Array.from(plot.calcdata[0][0].z).flatMap(row => Array.from(row))")
    assert sum(cell is not None for cell in cells) == 8
    click_cell(page, "grid", row=0, column=3)
    expect(region(page, "rank")).to_contain_text("Rank 2")
    assert "rank=2" in page.url
    ranks = region(page, "chain").locator(".chain-rank .rank-chip")
    expect(ranks).to_have_count(4)
    assert [text.split()[-1] for text in ranks.all_inner_texts()] == ["2", "6", "4", str(STUCK)]
    expect(region(page, "chain").locator(".chain-hop").last).to_contain_text("never entered")
    expect(region(page, "chain").locator(".chain-rank").last).to_contain_text("behind")
    arrows = "plot.layout.annotations.filter(note => note.showarrow).length"
    until(lambda: figure_data(page, "grid", arrows) == 3, what="the arrows of the chain")


@pytest.mark.long
def test_typed_rank_is_shown_and_the_back_button_restores_the_previous_rank(page: Page, stuck: str) -> None:
    page.goto(stuck)
    wait_until_drawn(page)
    control(page, "rank").fill("7")
    control(page, "rank").press("Enter")
    page.wait_for_url("**rank=7**")
    expect(region(page, "rank")).to_contain_text("Rank 7")
    page.go_back()
    expect(region(page, "rank")).to_contain_text("Rank 5")
    expect(control(page, "rank")).to_have_value("")


@pytest.mark.long
def test_link_of_the_waiting_chain_selects_its_rank(page: Page, stuck: str) -> None:
    page.goto(f"{stuck}&rank=2")
    region(page, "chain").get_by_role("link", name="rank 4").click()
    expect(region(page, "rank")).to_contain_text("Rank 4")


@pytest.mark.long
def test_hang_view_reports_an_unknown_rank(page: Page, stuck: str) -> None:
    page.goto(f"{stuck}&rank=64")
    expect(region(page, "rank")).to_contain_text("There is no rank 64")
    expect(region(page, "hang-verdict")).to_contain_text("rank 5 is behind")


@pytest.mark.long
def test_open_hang_view_shows_a_new_stall_and_removes_it_when_the_job_continues(
    page: Page, store: EmbeddedStore, address: str
) -> None:
    run = SyntheticRun(run_id="stalls-later", slow={})
    run.introduce(store)
    run.advance(store, 5)
    page.goto(f"{address}?view=hang&run=stalls-later")
    expect(region(page, "hang-verdict")).to_contain_text("No stall was recorded")
    run.leave_evidence(store, evidence_rows(run.now_ns + 36 * S))
    expect(region(page, "hang-verdict")).to_contain_text("rank 5 is behind")
    figure(page, "grid")
    run.stand_still(60)
    run.advance(store, 1)
    expect(region(page, "hang-verdict")).to_contain_text("No stall was recorded")
    expect(region(page, "rank")).to_be_empty()


@pytest.mark.long
@pytest.mark.parametrize("view", ["hang", "grid"])
def test_tables_of_long_group_names_fit_into_their_panel(
    page: Page, store: EmbeddedStore, address: str, view: str
) -> None:
    name = f"long-groups-{view}"
    put(store, job := simulated(name, "context", SLOWED, num_steps=4, topology=Topology.parse("pp=1,dp=4,cp=2,tp=2")))
    leave_evidence(store, job)
    page.goto(f"{address}?view={view}&run={name}&rank=7")
    wait_until_drawn(page)
    expect(page.locator("aside table").first).to_contain_text("1, 3, 5 … (8 ranks)")
    beyond = """tables => tables.map(table => {
        const panel = table.closest(".panel")
        return table.getBoundingClientRect().right - panel.getBoundingClientRect().right
            + parseFloat(getComputedStyle(panel).paddingRight)
    })"""
    assert max(page.locator("aside table").evaluate_all(beyond)) <= 1  # pixels
