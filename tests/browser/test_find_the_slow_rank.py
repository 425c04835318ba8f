"""From the list of runs to the culprit's span, in a real browser."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import page_of_another
from tests.browser.on_page import (
    click_span,
    control,
    figure,
    figure_data,
    region,
    timeline,
    told_by_timeline,
    wait_for_points,
    wait_until_drawn,
)

pytestmark = pytest.mark.browser


@pytest.mark.long
def test_opening_a_run_shows_its_worst_finding(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_role("link", name="slow-rank-5").click()
    expect(region(page, "verdict")).to_contain_text(re.compile(r"rank 5 \(host gpu-03, dp1 pp0 tp1\).*its peers"))
    wait_for_points(page, "step-time", 40)
    expect(region(page, "events")).to_contain_text("generation 2")


def test_three_clicks_lead_from_the_list_to_the_suspects_step(page: Page, address: str) -> None:
    page.goto(address)
    page.get_by_role("link", name="slow-rank-5").click()
    page.get_by_role("link", name="Show timeline").click()
    expect(region(page, "spans-title")).to_contain_text("pipeline group of rank 5")
    expect(page).to_have_title("slow-rank-5 · Timeline · rankscope")
    click_span(page, "backward-compute")
    expect(region(page, "details")).to_contain_text("gpu-03")


@pytest.mark.long
def test_the_heat_map_shows_the_slow_rank(page: Page, address: str) -> None:
    page.goto(f"{address}?view=heatmap&run=slow-rank-5")
    medians = figure_data(page, "hosts", "Array.from(plot.calcdata[0][0].z).flatMap(row => Array.from(row))")
    ratios = sorted(value for value in medians if value is not None)
    assert len(ratios) == 8
    assert ratios[-1] == pytest.approx(1.4, abs=0.05)
    assert ratios[-2] == pytest.approx(1.0, abs=0.05)
    labels = figure(page, "cells").locator(".ytick text").all_text_contents()
    assert [label for label in labels if "suspect" in label] == ["▶ suspect rank 5 · gpu-03 · dp1 pp0 tp1"]
    expect(region(page, "heat-says")).to_contain_text("the slowest is rank 5 (host gpu-03, dp1 pp0 tp1), 1.4")


@pytest.mark.long
def test_a_cell_of_the_heat_map_leads_to_its_step(page: Page, address: str) -> None:
    page.goto(f"{address}?view=heatmap&run=slow-rank-5")
    wait_until_drawn(page)
    box = figure(page, "cells").locator(".nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 10.5 / 40, box["y"] + box["height"] * 5.5 / 8)
    expect(region(page, "spans-title")).to_contain_text("Step 10, pipeline group of rank 5")
    assert "view=timeline" in page.url


def test_click_on_a_span_shows_its_details_and_the_link_restores_them(page: Page, address: str) -> None:
    page.goto(f"{address}?view=timeline&run=slow-rank-5&group=tp&rank=5&step=20")
    key = click_span(page, "forward-compute", number=6)
    details = region(page, "details")
    expect(details).to_contain_text("forward-compute")
    expect(details).to_contain_text("dp1 pp0 tp1")
    expect(details).to_contain_text("processor time")
    expect(details).to_contain_text(re.compile(r"1\.[34]\dx its peers"))
    assert f"span=5-{key['seq']}" in page.url
    told = details.inner_text()
    with page_of_another(page) as other:
        other.goto(page.url)
        expect(region(other, "details")).to_contain_text("its peers")
        assert region(other, "details").inner_text() == told
        selected = told_by_timeline(other, "timeline.selected()")
        assert (selected["key"]["rank"], selected["key"]["seq"]) == (5, key["seq"])


@pytest.mark.long
def test_controls_write_the_address_and_going_back_restores_them(page: Page, address: str) -> None:
    page.goto(f"{address}?view=heatmap&run=slow-rank-5")
    figure(page, "cells")
    control(page, "metric").get_by_text("Milliseconds").click()
    page.wait_for_url("**metric=ms**")
    control(page, "stage").click()
    page.get_by_role("option", name="optimizer", exact=True).click()
    page.wait_for_url("**stage=optimizer**")
    expect(region(page, "heat-says")).to_contain_text(re.compile("optimizer: .*the slowest is rank 5"))
    page.go_back()
    expect(control(page, "stage")).to_have_value("forward-compute")
    expect(region(page, "heat-says")).to_contain_text(re.compile("forward-compute: .*the slowest is rank 5"))
    assert "metric=ms" in page.url


@pytest.mark.long
def test_typed_range_of_steps_is_shown(page: Page, address: str) -> None:
    page.goto(f"{address}?view=heatmap&run=slow-rank-5")
    figure(page, "cells")
    control(page, "first").fill("10")
    control(page, "first").press("Enter")
    page.wait_for_url("**steps=10-**")
    control(page, "last").fill("19")
    control(page, "last").press("Enter")
    page.wait_for_url("**steps=10-19**")
    expect(region(page, "hosts-title")).to_contain_text("steps 10 to 19")
    wait_for_points(page, "cells", 10)


@pytest.mark.long
def test_bracket_key_and_links_open_the_next_and_the_previous_step(page: Page, address: str) -> None:
    page.goto(f"{address}?view=timeline&run=slow-rank-5&group=all&step=20")
    timeline(page)
    page.keyboard.press("]")
    expect(region(page, "spans-title")).to_contain_text("Step 21, all ranks")
    page.get_by_role("link", name="Previous").click()
    expect(region(page, "spans-title")).to_contain_text("Step 20, all ranks")


@pytest.mark.long
def test_heat_map_of_a_collective_names_the_ranks_that_are_waited_for(page: Page, address: str) -> None:
    page.goto(f"{address}?view=heatmap&run=slow-rank-5&stage=grads-reduce-scatter")
    expect(region(page, "heat-says")).to_contain_text("the other ranks of ")
