"""The pure functions of the timeline's scripts, in the browser that runs them."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

import ui.dashboard
from telemetry.stages import Stage
from tests.ui.few_spans import buffer_of, made_spans
from ui.dashboard.records import SpanColumns
from ui.dashboard.wording import duration

pytestmark = pytest.mark.browser

SCRIPTS = Path(ui.dashboard.__file__).parent / "assets" / "timeline"
FORWARD, BACKWARD = int(Stage.FORWARD_COMPUTE), int(Stage.BACKWARD_COMPUTE)
COMPOSE = """([data, window, width]) => {
    const timeline = rankscopeTimeline;
    const spans = timeline.decode(data);
    const tracks = timeline.tracksOf(spans);
    const colours = {stage: new Uint32Array(256), waiting: new Uint32Array(256), edge: new Uint32Array(256)};
    for (let code = 0; code < 256; code += 1) {
        colours.stage[code] = (0xff000000 | code) >>> 0;
        colours.waiting[code] = (0xff000000 | (code + 100)) >>> 0;
        colours.edge[code] = (0xff000000 | (code + 200)) >>> 0;
    }
    const line = new Uint32Array(width).fill(0xff000000);
    const labels = [];
    timeline.composeTrack(line, spans, tracks, tracks.tracks[0], window, colours, labels);
    return {line: Array.from(line, (one) => one & 255), labels};
}"""


@pytest.fixture(scope="module")
def scripts(browser: Browser) -> Iterator[Page]:
    """A blank page with the scripts alone."""
    page = browser.new_page()
    for path in sorted(SCRIPTS.glob("*.js")):
        page.add_script_tag(path=path)
    yield page
    page.close()


def composed(scripts: Page, spans: SpanColumns, window: tuple[float, float], width: int) -> dict[str, Any]:
    """The first track of ``spans`` as a line of pixels: stage codes, 100 more where waiting, 200 more at an edge."""
    names = {int(rank): "" for rank in np.unique(spans.rank)}
    line: dict[str, Any] = scripts.evaluate(COMPOSE, [buffer_of(spans, names), list(window), width])
    return line


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "f8"])
def test_columns_arrive_as_they_were_sent(scripts: Page, dtype: str) -> None:
    values = np.array([0, 1, 100, 127], dtype=dtype)
    column = {"dtype": dtype, "bdata": base64.b64encode(values.tobytes()).decode()}
    assert scripts.evaluate("column => Array.from(rankscopeTimeline.unpack(column))", column) == values.tolist()


def test_a_key_of_64_bits_finds_its_span_and_back(scripts: Page) -> None:
    first = 2**60 + 1
    spans = made_spans(
        *[(4, Stage.FORWARD_COMPUTE, 10 * at, 9) for at in range(5)], seq=[first + at for at in range(5)]
    )
    found = scripts.evaluate(
        """data => {
            const {decode, indexOf, keyOf} = rankscopeTimeline;
            const spans = decode(data);
            return [keyOf(spans, 3), indexOf(spans, keyOf(spans, 3)), indexOf(spans, {rank: 9, seq: "1"})];
        }""",
        buffer_of(spans, {4: "a"}),
    )
    assert found == [{"rank": 4, "seq": str(first + 3)}, 3, -1]


def test_zoom_keeps_the_place_under_the_pointer(scripts: Page) -> None:
    first, last = scripts.evaluate("rankscopeTimeline.zoomAbout([0, 100000], 25000, 0.5, 100000)")
    assert (25_000 - first) / (last - first) == pytest.approx(0.25)
    assert last - first == pytest.approx(50_000)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("pan([0, 50000], -10, 100000)", [0, 50_000]),
        ("pan([40000, 90000], 30000, 100000)", [50_000, 100_000]),
        ("zoomAbout([0, 100000], 50000, 9, 100000)", [0, 100_000]),
        ("clamp([5, 6], 100000)", [5, 1005]),
        ("clamp([0, 50], 10)", [0, 10]),
        ("around(40000, 41000, 100000)", [39_500, 41_500]),
    ],
)
def test_a_window_stays_within_the_picture(scripts: Page, call: str, expected: list[float]) -> None:
    assert scripts.evaluate(f"rankscopeTimeline.{call}") == expected


@pytest.mark.parametrize(("first", "last", "text"), [(0, 2e9, "0.5 s"), (1e6, 1.01e6, "1002 µs"), (5e6, 95e6, "20 ms")])
def test_the_axis_has_round_times(scripts: Page, first: float, last: float, text: str) -> None:
    ticks = scripts.evaluate(
        """([first, last]) => {
            const {values, name, text} = rankscopeTimeline.axisTicks(first, last, 600);
            return {values, said: values.map((ns) => `${text(ns)} ${name}`)};
        }""",
        [first, last],
    )
    assert text in ticks["said"]
    assert 3 <= len(ticks["values"]) <= 8
    assert all(first <= value <= last for value in ticks["values"])


@pytest.mark.parametrize("ns", [0, 999, 1500, 812_000, 40_200_000, 99_900_000, 412_000_000, 1_250_000_000])
def test_durations_read_as_on_the_rest_of_the_page(scripts: Page, ns: int) -> None:
    assert scripts.evaluate("ns => rankscopeTimeline.durationText(ns)", ns) == duration(ns)


def test_spans_that_overlap_lie_on_levels_of_their_own(scripts: Page) -> None:
    spans = made_spans(
        (0, Stage.FORWARD_RECV, 0, 100), (0, Stage.BACKWARD_SEND, 20, 30), (0, Stage.BACKWARD_SEND, 60, 90),
        (0, Stage.FORWARD_RECV, 100, 10),
    )  # fmt: skip
    tracks = scripts.evaluate(
        """data => {
            const {tracks, order} = rankscopeTimeline.tracksOf(rankscopeTimeline.decode(data));
            return tracks.map(({level, first, last}) => [level, Array.from(order.subarray(first, last))]);
        }""",
        buffer_of(spans, {0: "a"}),
    )
    assert tracks == [[0, [0, 3]], [1, [1, 2]]]


def test_near_a_span_is_an_exact_bar_and_its_waiting_is_lighter(scripts: Page) -> None:
    collective = Stage.GRADS_REDUCE_SCATTER
    spans = made_spans((0, collective, 1000, 6000), (1, collective, 4000, 3000), op_seq=[1, 1])
    waiting, itself, edge = int(collective) + 100, int(collective), int(collective) + 200
    line = composed(scripts, spans, (0, 6000), 12)["line"]
    assert line == [*[waiting] * 6, *[itself] * 5, edge]


def test_a_label_can_be_read_on_what_lies_under_its_middle(scripts: Page) -> None:
    ink = """(waited) => {
        const spans = {waited: [waited], duration: [10], stage: [1]};
        const inks = {stage: new Map([[1, "black"]]), waiting: new Map([[1, "white"]])};
        return rankscopeTimeline.inkOf(spans, 0, inks);
    }"""
    assert [scripts.evaluate(ink, waited) for waited in (0, 4, 6, 10)] == ["black", "black", "white", "white"]


def test_far_out_a_column_takes_the_stage_that_fills_most_of_it(scripts: Page) -> None:
    spans = made_spans(
        *[(0, Stage.FORWARD_COMPUTE, 1000 * at, 300) for at in range(100)],
        *[(0, Stage.BACKWARD_COMPUTE, 1000 * at + 300, 700) for at in range(100)],
    )
    assert composed(scripts, spans, (0, 100_000), 10)["line"] == [BACKWARD] * 10


def test_the_smallest_span_far_out_can_be_seen(scripts: Page) -> None:
    spans = made_spans(
        (0, Stage.STEP, 0, 100_000), (0, Stage.FORWARD_COMPUTE, 50_500, 1), (0, Stage.FORWARD_COMPUTE, 99_999, 1)
    )
    line = composed(scripts, spans, (0, 100_000), 10)["line"]
    assert [at for at, one in enumerate(line) if one] == [5, 9]
    assert line[5] == round(0.4 * FORWARD)


def test_panning_by_whole_pixels_changes_no_column(scripts: Page) -> None:
    draw = np.random.default_rng(4)
    starts = np.sort(draw.integers(0, 10**6, 3000)).tolist()
    stages = [Stage.FORWARD_COMPUTE, Stage.BACKWARD_COMPUTE]
    rows = [(0, stages[int(draw.integers(2))], start, int(draw.integers(1, 300))) for start in starts]
    spans = made_spans(*rows)
    whole = composed(scripts, spans, (0, 400_000), 400)["line"]
    moved = composed(scripts, spans, (37_000, 437_000), 400)["line"]
    assert moved[:363] == whole[37:]


def test_wide_spans_are_labelled_where_they_can_be_seen(scripts: Page) -> None:
    spans = made_spans((0, Stage.FORWARD_COMPUTE, 0, 5000), (0, Stage.FORWARD_COMPUTE, 5000, 10))
    assert composed(scripts, spans, (2000, 6000), 400)["labels"] == [0, 0, 300]


def test_pinned_rows_stay_on_top_while_the_others_scroll_under_them(scripts: Page) -> None:
    placed = scripts.evaluate("rankscopeTimeline.placedRows({rows: [7, 0, 1, 2, 3], numPinned: 1}, 20, 30, 60)")
    assert placed == [
        {"row": 1, "top": 10, "from": 20, "to": 30},
        {"row": 2, "top": 30, "from": 30, "to": 50},
        {"row": 3, "top": 50, "from": 50, "to": 60},
        {"row": 7, "top": 0, "from": 0, "to": 20},
    ]


def test_lanes_without_spans_take_no_room(scripts: Page) -> None:
    shares = scripts.evaluate("rankscopeTimeline.laneShares([{weight: 3}, {weight: 1}, {weight: 1}], [1, 0, 1])")
    assert [round(share["height"], 4) for share in shares] == [0.675, 0, 0.225]
    assert shares[2]["top"] == pytest.approx(0.675)


def test_an_answer_to_something_older_is_no_news(scripts: Page) -> None:
    told = scripts.evaluate(
        """() => {
            let now = 0;
            const echo = new rankscopeTimeline.Echo(() => now);
            echo.told([1, 2]);
            echo.told([3, 4]);
            const answers = [echo.isNews([1, 2]), echo.isNews([9, 9]), echo.isNews([3, 4]), echo.isNews([3, 4])];
            echo.told([5, 6]);
            now = 6000;
            return [...answers, echo.isNews([5, 6])];
        }"""
    )
    assert told == [False, True, False, True, True]


@pytest.mark.parametrize(
    ("name", "gutter"), [("dp1 · gpu-03", 172), ("pp0 dp1 cp0 tp1 · gpu-000", 212), ("long " * 40, 264)]
)
def test_names_of_rows_have_room_beside_those_of_lanes(scripts: Page, name: str, gutter: int) -> None:
    """A letter is six pixels wide here."""
    call = """name => {
        const context = {measureText: (text) => ({width: 6 * text.length})};
        return rankscopeTimeline.namesWidth(context, {rows: [{name}], lanes: [{name: "compute"}]}, 900);
    }"""
    assert scripts.evaluate(call, name) == {"gutter": gutter, "lanesPx": 58}


def test_words_and_numbers_of_narrow_tables_are_whole(scripts: Page) -> None:
    """The text breaks between words only: each cell but the name of the stage is a line of 20 pixels."""
    for name in ("dashboard.css", "timeline.css", "hang.css"):
        scripts.add_style_tag(path=SCRIPTS.parent / name)
    cells = "".join(f"<td>{text}</td>" for text in ("grads-reduce-scatter", "144", "1.13 s", "67.4 ms", "78.8 ms"))
    heads = "".join(f"<th>{text}</th>" for text in ("stage", "count", "total", "mean", "longest"))
    table = f"<table class='shares area-statistics'><tr>{heads}</tr><tr>{cells}</tr></table>"
    scripts.evaluate("html => document.body.innerHTML = html", f"<div style='width: 290px'>{table}</div>")
    lines = """() => [...document.querySelectorAll("th, td:not(:first-child)")].map((cell) => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        return new Set([...range.getClientRects()].map((box) => box.top)).size;
    })"""
    assert scripts.evaluate(lines) == [1] * 9
