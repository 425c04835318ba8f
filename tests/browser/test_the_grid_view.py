"""The grid of ranks in a real browser: a rank is selected by mouse and by keyboard, and the grid is rotated."""

from itertools import count

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
"""The position of rank 7 of eight on the screen."""


@pytest.fixture(scope="module")
def stuck(store: EmbeddedStore, address: str) -> str:
    """Address of the grid of a job in which rank 5 hangs in its data loader."""
    run = SyntheticRun(run_id="stuck-grid", slow={})
    run.introduce(store)
    run.advance(store, STEP + 1)
    run.leave_evidence(store, evidence_rows(run.now_ns + 35 * S))
    return f"{address}?view=grid&run=stuck-grid"


def test_rank_of_the_grid_is_selected_by_click_and_its_neighbour_by_keyboard(page: Page, stuck: str) -> None:
    page.goto(stuck)
    expect(region(page, "grid-rank")).to_contain_text("Rank 5")
    click_cell(page, "grid", row=0, column=3)
    page.wait_for_url("**rank=2**")
    expect(region(page, "grid-rank")).to_contain_text("Rank 2")
    expect(region(page, "grid-title")).to_contain_text("waiting chain")
    after = region(page, "grid-rank").locator(".groups .rank-chip").first
    after.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**rank=3**")
    expect(control(page, "rank")).to_have_value("3")
    page.go_back()
    expect(region(page, "grid-rank")).to_contain_text("Rank 2")


@pytest.mark.long
def test_rank_of_the_3d_grid_is_selected_by_click_and_the_grid_is_rotated(page: Page, stuck: str) -> None:
    page.goto(f"{stuck}&form=3d&rank=2")
    wait_until_drawn(page)
    at = figure_data(page, "grid", BODY_POINT)
    page.mouse.move(at[0] - 2, at[1])
    expect(page.locator(".hovertext")).to_contain_text("rank 7")
    page.mouse.click(*at, delay=500)  # plotly reads the state of the button when it draws
    page.wait_for_url("**rank=7**")
    expect(region(page, "grid-rank")).to_contain_text("Rank 7")
    assert "form=3d" in page.url
    across = "plot._fullLayout.scene._scene.getCamera().eye.x"
    before = figure_data(page, "grid", across)
    page.mouse.move(at[0], at[1] + 250)
    page.mouse.down()
    to_the_right = count(int(at[0]), 8)

    def is_turned() -> bool:
        page.mouse.move(next(to_the_right), at[1] + 250)
        return bool(abs(figure_data(page, "grid", across) - before) > 0.1)

    until(is_turned, every=0.2, what="another view of the body")
    page.mouse.up()


@pytest.mark.long
def test_grid_shows_the_controls_of_the_selected_colouring(page: Page, address: str) -> None:
    page.goto(f"{address}?view=grid&run=slow-rank-5")
    wait_until_drawn(page)
    region(page, "grid-controls").get_by_text("Time of a stage", exact=True).click()
    page.wait_for_url("**colour=metric**")
    expect(region(page, "grid-says")).to_contain_text("forward-compute: the slowest is rank 5")
    region(page, "grid-controls").get_by_text("Milliseconds", exact=True).click()
    page.wait_for_url("**metric=ms**")
    region(page, "grid-rank").get_by_role("link", name="replicas").click()
    page.wait_for_url("**view=timeline**")
    assert "group=dp" in page.url
