"""The grid of ranks in a real browser: a rank is chosen by hand and by keyboard, and the grid is turned."""

import pytest
from playwright.sync_api import Page, expect

from telemetry.stores.embedded import EmbeddedStore
from tests.browser.on_page import click_cell, control, figure_data, region, wait_until_drawn
from tests.deadline import until
from tests.ui.made_hang import STEP, S, evidence_rows
from tests.ui.synthetic_run import SyntheticRun

pytestmark = pytest.mark.browser
BODY_POINT = """(() => {
    const scene = plot._fullLayout.scene._scene, {model, view, projection} = scene.glplot.cameraParams;
    const times = (m, v) => [0, 1, 2, 3].map(i => m[i] * v[0] + m[4 + i] * v[1] + m[8 + i] * v[2] + m[12 + i] * v[3]);
    const scaled = [1, 1, 1].map((at, axis) => at * scene.dataScale[axis]);
    const at = times(projection, times(view, times(model, [...scaled, 1])));
    const box = plot.querySelector(".gl-container canvas").getBoundingClientRect();
    return [box.x + box.width * (1 + at[0] / at[3]) / 2, box.y + box.height * (1 - at[1] / at[3]) / 2];
})()"""
"""Where rank 7 of eight is on the screen."""


@pytest.fixture(scope="module")
def stuck(store: EmbeddedStore, address: str) -> str:
    """Address of the grid of a job in which rank 5 never comes out of its data loader."""
    run = SyntheticRun(run_id="stuck-grid", slow={})
    run.introduce(store)
    run.advance(store, STEP + 1)
    run.leave_evidence(store, evidence_rows(run.now_ns + 35 * S))
    return f"{address}?view=grid&run=stuck-grid"


def test_a_rank_is_clicked_then_its_neighbours_walked_by_keyboard(page: Page, stuck: str) -> None:
    page.goto(stuck)
    expect(region(page, "grid-rank")).to_contain_text("Rank 5")
    click_cell(page, "grid", row=0, column=3)
    page.wait_for_url("**rank=2**")
    expect(region(page, "grid-rank")).to_contain_text("Rank 2")
    expect(region(page, "grid-title")).to_contain_text("whom it waits for")
    after = region(page, "grid-rank").locator(".groups .rank-chip").first
    after.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**rank=3**")
    expect(control(page, "rank")).to_have_value("3")
    page.go_back()
    expect(region(page, "grid-rank")).to_contain_text("Rank 2")


@pytest.mark.long
def test_the_grid_is_turned_and_stays_so_when_another_rank_is_chosen(page: Page, stuck: str) -> None:
    page.goto(f"{stuck}&form=3d&rank=2")
    wait_until_drawn(page)
    eye = "JSON.stringify(plot._fullLayout.scene._scene.getCamera().eye)"
    before = figure_data(page, "grid", eye)
    box = page.locator(".gl-container canvas").first.bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 160, middle[1] + 20, steps=4)
    page.mouse.up()
    until(lambda: figure_data(page, "grid", eye) != before, what="another view of the body")
    turned = figure_data(page, "grid", eye)
    region(page, "grid-rank").locator(".groups .rank-chip").first.click()
    page.wait_for_url("**rank=3**")
    expect(region(page, "grid-title")).to_contain_text("tensor group of rank 3")
    assert figure_data(page, "grid", eye) == turned
    assert "form=3d" in page.url
    at = figure_data(page, "grid", BODY_POINT)
    page.mouse.move(at[0] - 2, at[1])
    page.mouse.click(*at, delay=500)  # plotly looks at the button when it draws
    page.wait_for_url("**rank=7**")


@pytest.mark.long
def test_colours_are_chosen_and_bring_their_controls(page: Page, address: str) -> None:
    page.goto(f"{address}?view=grid&run=slow-rank-5")
    wait_until_drawn(page)
    region(page, "grid-controls").get_by_text("Time of a stage", exact=True).click()
    page.wait_for_url("**colour=metric**")
    expect(region(page, "grid-says")).to_contain_text("forward-compute: highest is rank 5")
    region(page, "grid-controls").get_by_text("Milliseconds", exact=True).click()
    page.wait_for_url("**metric=ms**")
    region(page, "grid-rank").get_by_role("link", name="replicas").click()
    page.wait_for_url("**view=timeline**")
    assert "group=dp" in page.url
