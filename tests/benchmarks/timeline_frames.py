"""Time of a frame of the timeline during zoom and pan, compared with plotly on the same spans.

python -m tests.benchmarks.timeline_frames [--json]

The browser is Chromium with software rendering. A frame lasts from the change of the window until the page has painted
it, including the wait for the screen refresh (up to 17 ms). The first picture starts at the received text.
``tests.benchmarks.dashboard`` times whole pages.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import plotly
import plotly.graph_objects as go
from playwright.sync_api import Browser, Page, sync_playwright

import ui.dashboard
from tests.benchmarks.figures import Figure, report
from tests.benchmarks.timeline_rivals import as_bars, as_lines, for_canvas, made_picture
from tests.parts import CHROMIUM, require
from ui.dashboard.records import SpanColumns

FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
SIZES = (5_000, 20_000, 100_000)
BOUND_MS = 50.0
TURNS = 60
SLOW_TURNS = 3
SLOW_FROM = 50_000
"""From this number of spans, the bars of plotly take seconds per frame."""
SCRIPTS = Path(ui.dashboard.__file__).parent / "assets" / "timeline"
PLOTLY = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
Times = dict[str, list[float]]

FRAMES = """
const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
async function timed(number, does) {
    const times = [];
    await painted();
    for (let turn = 0; turn < number; turn += 1) {
        const began = performance.now();
        await does(turn);
        await painted();
        times.push(performance.now() - began);
    }
    return times;
}
// A window that closes in on the middle and opens again, and one that moves along: shares of the whole.
const zoomed = (turn, number) => {
    const half = 0.5 * 0.93 ** (turn < number / 2 ? turn + 1 : number - turn);
    return [0.5 - half, 0.5 + half];
};
const panned = (turn, number) => {
    const first = 0.1 + (0.6 * (turn + 1)) / number;
    return [first, first + 0.2];
};
async function measured(number, first, show) {
    return {
        first: await timed(1, first),
        zoom: await timed(number, (turn) => show(zoomed(turn, number))),
        pan: await timed(number, (turn) => show(panned(turn, number))),
    };
}
"""
CANVAS = """async ([text, number]) => {
    const root = document.getElementById("root");
    let view;
    const first = () => {
        view = new rankscopeTimeline.View(root, "spans", () => {});
        view.update({data: JSON.parse(text)});
    };
    return measured(number, first, (shares) => view.moveTo(shares.map((one) => one * view.spans.end)));
}"""
PLOT = """async ([text, number]) => {
    const root = document.getElementById("root");
    let whole;
    const first = async () => {
        await Plotly.newPlot(root, JSON.parse(text));
        whole = root._fullLayout.xaxis.range.slice();
    };
    const at = (share) => whole[0] + share * (whole[1] - whole[0]);
    return measured(number, first, (shares) => Plotly.relayout(root, {"xaxis.range": shares.map(at)}));
}"""


class FrameBenchmark:
    """Frames of one picture at several sizes."""

    title = "The timeline in a browser"
    command = "python -m tests.benchmarks.timeline_frames"

    def run(self) -> list[Figure]:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=require(CHROMIUM), args=FLAGS)
            try:
                return [figure for size in SIZES for figure in _frames(browser, made_picture(size))]
            finally:
                browser.close()


def _frames(browser: Browser, spans: SpanColumns) -> Iterator[Figure]:
    size = len(spans)
    canvas = json.dumps(for_canvas(spans))
    ours = _measure(browser, CANVAS, canvas, TURNS)
    rivals: dict[str, tuple[str, Times]] = {}
    makers: dict[str, Callable[[SpanColumns], go.Figure]] = {"go.Bar": as_bars, "scattergl": as_lines}
    for name, make in makers.items():
        text = make(spans).to_json()
        rivals[name] = text, _measure(browser, PLOT, text, SLOW_TURNS if size >= SLOW_FROM else TURNS // 4)
    for what, words in (("first", "first picture"), ("zoom", "zoom, one frame"), ("pan", "pan, one frame")):
        for name, (_, theirs) in rivals.items():
            yield _figure(
                f"{size:,} spans: {words}", ours[what], name, theirs[what], None if what == "first" else BOUND_MS
            )
    for name, (text, _) in rivals.items():
        yield Figure(
            name=f"{size:,} spans: data sent",
            value=len(canvas) / 1e6,
            unit="MB",
            rival=name,
            rival_value=len(text) / 1e6,
            note="before compression",
        )


def _figure(name: str, ours: list[float], rival: str, theirs: list[float], bound: float | None) -> Figure:
    median, low, high = np.percentile(ours, (50, 10, 90)).tolist()
    return Figure(
        name=name,
        value=median,
        low=low,
        high=high,
        unit="ms",
        rival=f"plotly {rival}",
        rival_value=float(np.median(theirs)),
        bound=bound,
    )


def _measure(browser: Browser, script: str, text: str, turns: int) -> Times:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        page.set_default_timeout(600_000)
        _prepare(page)
        times: Times = page.evaluate(f"(argument) => {{ {FRAMES} return ({script})(argument); }}", [text, turns])
        return times


def _prepare(page: Page) -> None:
    style: Any = "margin: 0; width: 1200px; background: #ffffff; color: #111111"
    page.set_content(f'<body style="margin: 0"><div id="root" style="{style}"></div></body>')
    for path in sorted(SCRIPTS.glob("*.js")):
        page.add_script_tag(path=path)
    page.add_style_tag(path=SCRIPTS.parent / "timeline.css")
    page.add_script_tag(path=PLOTLY)


BENCHMARK = FrameBenchmark()


def main() -> int:
    """Print the figures. The exit status is 1 if a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    return report(BENCHMARK.title, BENCHMARK.run(), as_json=parser.parse_args().json)


if __name__ == "__main__":
    sys.exit(main())
