"""The heat map of 2,048 ranks in a real browser: its size, its colour scale, its hover text and its order."""

import math

import pytest
from playwright.sync_api import Page, expect

from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.topology import Topology
from tests.browser.on_page import control, figure, figure_data, wait_until_drawn
from tests.telemetry.made_rows import insert, made

pytestmark = pytest.mark.browser

RUN, GRID, SLOW, NUM_STEPS = "wide", Topology(dp=64, pp=4, tp=8), 1234, 4
STEP_NS, FORWARD_NS, FIRST_NS = 400_000_000, 100_000_000, 1_790_000_000_000_000_000
PLACE = f"rank {SLOW}\ngpu-154 · {GRID.describe(SLOW)}\n"
FIRST_LABEL = "Array.from(plot._fullLayout.yaxis.ticktext)[0]"


@pytest.fixture(scope="module")
def wide(store: EmbeddedStore, address: str) -> str:
    """Address of the heat map of a run of 2,048 ranks, one of which is slow."""
    sizes = {"dp_size": GRID.dp, "pp_size": GRID.pp, "tp_size": GRID.tp, "started_ns": FIRST_NS}
    ranks = [
        {"rank": rank, "host": f"gpu-{rank // 8:03d}", "local_rank": rank % 8, **sizes}
        for rank in range(GRID.world_size)
    ]
    insert(store, "ranks", made("ranks", ranks), run_id=RUN)
    for number, (stage, usual_ns) in enumerate(((Stage.FORWARD_COMPUTE, FORWARD_NS), (Stage.STEP, STEP_NS))):
        spans = [
            {"rank": rank, "seq": 2 * step + number, "stage": int(stage), "step": step}
            | {"stream": int(stage.stream), "start_ns": FIRST_NS + step * STEP_NS}
            | {"duration_ns": round(usual_ns * (1.3 if rank == SLOW and stage is not Stage.STEP else 1))}
            for rank in range(GRID.world_size)
            for step in range(NUM_STEPS)
        ]
        insert(store, "spans", made("spans", spans), run_id=RUN)
    return f"{address}?view=heatmap&run={RUN}"


def test_heat_map_of_2048_ranks_fits_two_screens_with_the_slowest_rank_first_and_hover_text(
    page: Page, wide: str
) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    page.goto(wide)
    wait_until_drawn(page)
    assert page.evaluate("document.documentElement.scrollHeight") <= 2 * 900
    control(page, "sort").get_by_text("Highest first").click()
    page.wait_for_url("**sort=value**")
    wait_until_drawn(page)
    label = f"rank {SLOW} and"
    page.wait_for_function(
        "label => document.querySelector('[id*=cells] .js-plotly-plot')._fullLayout.yaxis.ticktext[0].includes(label)",
        arg=label,
    )
    assert label in figure_data(page, "cells", FIRST_LABEL)
    figure(page, "cells").scroll_into_view_if_needed()
    page.mouse.wheel(0, 5000)
    scale = page.locator(".scale-bar")
    expect(scale).to_be_in_viewport(ratio=1)
    box = figure(page, "cells").locator(".nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 40, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + 42, math.ceil(box["y"]), steps=4)  # the event has whole pixels
    expect(page.locator(".cell-hover")).to_contain_text(f"rank {SLOW}")
    text = page.locator(".cell-hover").inner_text()
    assert text.startswith(PLACE), text
    assert "1.30x its peers\n130.0 ms" in text
