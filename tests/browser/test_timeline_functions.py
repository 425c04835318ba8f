"""The pure functions of the timeline's scripts, in the browser that runs them."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import BrowserContext, Page

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
def scripts(context: BrowserContext) -> Iterator[Page]:
    """A blank page with the scripts alone."""
    page = context.new_page()
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
def test_unpack_returns_the_values_of_a_packed_column(scripts: Page, dtype: str) -> None:
    values = np.array([0, 1, 100, 127], dtype=dtype)
    column = {"dtype": dtype, "bdata": base64.b64encode(values.tobytes()).decode()}
    assert scripts.evaluate("column => Array.from(rankscopeTimeline.unpack(column))", column) == values.tolist()


def test_span_key_of_64_bits_converts_to_its_index_and_back(scripts: Page) -> None:
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
def test_time_window_stays_within_the_timeline(scripts: Page, call: str, expected: list[float]) -> None:
    assert scripts.evaluate(f"rankscopeTimeline.{call}") == expected


@pytest.mark.parametrize(
    ("first", "last", "text"),
    [
        (0, 2e9, "0.5 s"),
        (0, 885e6, "200 ms"),
        (10.2e9, 10.4e9, "10.25 s"),
        (1e6, 1.01e6, "1002 µs"),
        (5e6, 95e6, "20 ms"),
    ],
)
def test_axis_ticks_are_round_times_within_the_window(scripts: Page, first: float, last: float, text: str) -> None:
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
def test_duration_text_equals_that_of_the_python_pages(scripts: Page, ns: int) -> None:
    assert scripts.evaluate("ns => rankscopeTimeline.durationText(ns)", ns) == duration(ns)


HEADS = """([data, selected]) => {
    const {decode, partners, latestStarter, drawArrows} = rankscopeTimeline;
    const drawn = {lines: 0, heads: 0, texts: []};
    const context = {
        beginPath() {}, moveTo() {}, lineTo() {}, bezierCurveTo() {},
        stroke: () => { drawn.lines += 1; },
        fill: () => { drawn.heads += 1; },
    };
    const spans = decode(data);
    const others = partners(spans, selected);
    const view = {spans, selected, partners: others, latest: latestStarter(spans, selected, others), colours: {}};
    const placed = Array.from(spans.rows, (_, row) => ({row, top: 50 * row}));
    const {spanBox, xOf, outline, drawCallout} = rankscopeTimeline;
    Object.assign(rankscopeTimeline, {
        spanBox: (view, index) => ({x: 10, y: 50 * spans.row[index], width: 20, height: 10}),
        xOf: () => 10,
        outline: () => {},
        drawCallout: (context, view, anchor, tops, text) => drawn.texts.push(text),
    });
    drawArrows(context, {...view, placed, lanesHeight: 40, gutter: 0, width: 100, texts: []});
    Object.assign(rankscopeTimeline, {spanBox, xOf, outline, drawCallout});
    return drawn;
}"""
"""The lines, and the filled shapes: arrow heads, and the mark of the member that started last."""


@pytest.mark.parametrize("selected", [0, 1])
def test_members_of_a_collective_are_joined_by_lines_without_heads_if_no_rank_is_known_to_be_last(
    scripts: Page, selected: int
) -> None:
    """Three ranks of one host. Two of them start last, at the same time."""
    rows = [(rank, Stage.GRADS_REDUCE_SCATTER, start, 100 - start) for rank, start in ((0, 0), (1, 40), (2, 40))]
    tie = buffer_of(made_spans(*rows, op_seq=[4] * 3), {0: "a", 1: "b", 2: "c"}, world_size=3)
    assert scripts.evaluate(HEADS, [tie, selected]) == {"lines": 2, "heads": 0, "texts": []}


def test_arrows_lead_from_the_last_member_to_start_and_from_a_send_to_its_receive(scripts: Page) -> None:
    rows = [(rank, Stage.GRADS_REDUCE_SCATTER, start, 100 - start) for rank, start in ((0, 0), (1, 40), (2, 30))]
    known = buffer_of(made_spans(*rows, op_seq=[4] * 3), {0: "a", 1: "b", 2: "c"}, world_size=3)
    arrows_and_mark = {"lines": 2, "heads": 3, "texts": ["last to start: rank 1"]}
    assert scripts.evaluate(HEADS, [known, 0]) == arrows_and_mark
    transfer = made_spans((0, Stage.FORWARD_SEND, 0, 9), (1, Stage.FORWARD_RECV, 0, 9), peer=[1, 0], op_seq=[1, 1])
    sent = buffer_of(transfer, {0: "a", 1: "b"}, world_size=2)
    assert scripts.evaluate(HEADS, [sent, 1]) == {"lines": 1, "heads": 1, "texts": []}


PARTS = """([texts, from, to]) => {
    const parts = [];
    const context = {
        beginPath() {}, stroke() {}, moveTo: (x, y) => parts.push([y]), lineTo: (x, y) => parts.at(-1).push(y),
    };
    rankscopeTimeline.verticalLine(context, {texts}, 10, from, to);
    return parts;
}"""


@pytest.mark.parametrize(
    ("texts", "parts"),
    [
        ([], [[0, 100]]),
        ([{"x": 20, "y": 30, "width": 10, "height": 12}], [[0, 100]]),
        (
            [{"x": 5, "y": 60, "width": 20, "height": 12}, {"x": 0, "y": 30, "width": 20, "height": 12}],
            [[0, 30], [42, 60], [72, 100]],
        ),
        ([{"x": 5, "y": 95, "width": 20, "height": 12}, {"x": 5, "y": 200, "width": 20, "height": 12}], [[0, 95]]),
    ],
)
def test_vertical_line_has_a_gap_at_each_text(
    scripts: Page, texts: list[dict[str, int]], parts: list[list[int]]
) -> None:
    assert scripts.evaluate(PARTS, [texts, 0, 100]) == parts
    assert scripts.evaluate(PARTS, [texts, 100, 0]) == parts


LEVELS = """data => {
    const {tracks, order} = rankscopeTimeline.tracksOf(rankscopeTimeline.decode(data));
    return tracks.map(({level, first, last}) => [level, Array.from(order.subarray(first, last))]);
}"""


def test_overlapping_spans_are_on_separate_levels(scripts: Page) -> None:
    spans = made_spans(
        (0, Stage.FORWARD_RECV, 0, 100), (0, Stage.BACKWARD_SEND, 20, 30), (0, Stage.BACKWARD_SEND, 60, 90),
        (0, Stage.FORWARD_RECV, 100, 10),
    )  # fmt: skip
    assert scripts.evaluate(LEVELS, buffer_of(spans, {0: "a"})) == [[0, [0, 3]], [1, [1, 2]]]


def test_spans_that_overlap_only_by_rounding_share_a_level(scripts: Page) -> None:
    """A clock drift of 50 parts per million causes 5 us in 100 ms. The resolution of device times causes 400 ns."""
    spans = made_spans(
        (0, Stage.FORWARD_COMPUTE, 0, 100_000_000), (0, Stage.BACKWARD_COMPUTE, 99_995_000, 50_000),
        (0, Stage.FORWARD_COMPUTE, 100_044_600, 50_000), (0, Stage.BACKWARD_COMPUTE, 100_074_600, 50_000),
    )  # fmt: skip
    assert scripts.evaluate(LEVELS, buffer_of(spans, {0: "a"})) == [[0, [0, 1, 2]], [1, [3]]]


def test_zoomed_in_span_is_an_exact_bar_with_a_lighter_waiting_part(scripts: Page) -> None:
    collective = Stage.GRADS_REDUCE_SCATTER
    spans = made_spans((0, collective, 1000, 6000), (1, collective, 4000, 3000), op_seq=[1, 1])
    waiting, itself, edge = int(collective) + 100, int(collective), int(collective) + 200
    line = composed(scripts, spans, (0, 6000), 12)["line"]
    assert line == [*[waiting] * 6, *[itself] * 5, edge]


def test_label_ink_matches_the_colour_under_the_middle_of_the_label(scripts: Page) -> None:
    ink = """(waited) => {
        const spans = {waited: [waited], duration: [10], stage: [1]};
        const inks = {stage: new Map([[1, "black"]]), waiting: new Map([[1, "white"]])};
        return rankscopeTimeline.inkOf(spans, 0, inks);
    }"""
    assert [scripts.evaluate(ink, waited) for waited in (0, 4, 6, 10)] == ["black", "black", "white", "white"]


def test_zoomed_out_column_has_the_colour_of_the_stage_that_fills_most_of_it(scripts: Page) -> None:
    spans = made_spans(
        *[(0, Stage.FORWARD_COMPUTE, 1000 * at, 300) for at in range(100)],
        *[(0, Stage.BACKWARD_COMPUTE, 1000 * at + 300, 700) for at in range(100)],
    )
    assert composed(scripts, spans, (0, 100_000), 10)["line"] == [BACKWARD] * 10


def test_zoomed_out_timeline_still_shows_the_smallest_span(scripts: Page) -> None:
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


def test_wide_span_is_labelled_in_its_visible_part(scripts: Page) -> None:
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


def test_echo_of_a_recent_own_change_is_not_news(scripts: Page) -> None:
    told = scripts.evaluate(
        """() => {
            let now = 0;
            const echo = new rankscopeTimeline.Echo(() => now);
            echo.keep([1, 2]);
            echo.keep([3, 4]);
            const answers = [echo.isNews([1, 2]), echo.isNews([9, 9]), echo.isNews([3, 4]), echo.isNews([3, 4])];
            echo.keep([5, 6]);
            now = 6000;
            return [...answers, echo.isNews([5, 6])];
        }"""
    )
    assert told == [False, True, False, True, True]


@pytest.mark.parametrize(
    ("name", "gutter"), [("dp1 · gpu-03", 172), ("pp0 dp1 cp0 tp1 · gpu-000", 212), ("long " * 40, 264)]
)
def test_gutter_is_wide_enough_for_row_names_beside_lane_names(scripts: Page, name: str, gutter: int) -> None:
    """A letter is six pixels wide here."""
    call = """name => {
        const context = {measureText: (text) => ({width: 6 * text.length})};
        return rankscopeTimeline.namesWidth(context, {rows: [{name}], lanes: [{name: "compute"}]}, 900);
    }"""
    assert scripts.evaluate(call, name) == {"gutter": gutter, "lanesPx": 58}


NAMES = """([lanes, room]) => rankscopeTimeline.placedNames(lanes, room).map(({name, y}) => [name, y])"""


def test_lane_names_are_moved_apart_where_they_would_touch(scripts: Page) -> None:
    thin = [("compute", 10, 20), ("tp", 25, 9), ("cp", 34, 9), ("dp", 46, 15), ("host", 57, 7), ("ideal", 67, 13)]
    lanes = [{"name": name, "middle": middle, "height": height} for name, middle, height in thin]
    assert scripts.evaluate(NAMES, [[*lanes, {"name": "", "middle": 75, "height": 4}], 80]) == [
        ["compute", 10], ["tp", 25], ["cp", 37], ["dp", 49], ["host", 61], ["ideal", 73],
    ]  # fmt: skip
    assert scripts.evaluate(NAMES, [lanes, 77]) == [
        ["compute", 10], ["tp", 23], ["cp", 35], ["dp", 47], ["host", 59], ["ideal", 71],
    ]  # fmt: skip
    assert [name for name, _ in scripts.evaluate(NAMES, [lanes, 71])] == ["compute", "tp", "cp", "dp", "ideal"]


@pytest.mark.parametrize(
    ("room", "text"), [(18, "backward-compute 3"), (17, "B3"), (16, "B3"), (2, "B3"), (1, "B"), (0, None)]
)
def test_bar_has_its_short_name_with_number_where_the_long_one_does_not_fit(
    scripts: Page, room: int, text: str | None
) -> None:
    """A letter is one pixel wide here."""
    call = """room => {
        const stages = new Map([[4, {label: "backward-compute", short: "B"}]]);
        const own = {stages, open: new Map(), stage: [4], microbatch: [3]};
        const view = {spans: own, widths: new Map()};
        const context = {measureText: (text) => ({width: text.length})};
        return rankscopeTimeline.fittingName(context, view, own, 0, room) ?? null;
    }"""
    assert scripts.evaluate(call, room) == text


@pytest.mark.parametrize(
    ("rows", "window", "height"),
    [(784, 900, 784), (801, 900, 648), (1152, 2000, 1152), (3000, 2000, 760), (500, 300, 300)],
)
def test_all_rows_are_visible_if_they_fit_into_the_window(scripts: Page, rows: int, window: int, height: int) -> None:
    assert scripts.evaluate("([rows, window]) => rankscopeTimeline.viewHeight(rows, window)", [rows, window]) == height


@pytest.mark.parametrize(
    ("pinned", "scroll", "view", "text"),
    [
        (0, 0, 160, ""),
        (0, 0, 155, ""),
        (0, 0, 129, "Rows 1 to 6 of 8. Drag, or Shift + wheel, to scroll."),
        (0, 31, 129, "Rows 3 to 8 of 8. Drag, or Shift + wheel, to scroll."),
        (2, 40, 100, "Pinned rows and rows 5 to 7 of 8. Drag, or Shift + wheel, to scroll."),
    ],
)
def test_text_below_the_rows_tells_which_of_them_are_visible(
    scripts: Page, pinned: int, scroll: int, view: int, text: str
) -> None:
    call = """([numPinned, scrollTop, viewHeight]) => {
        const displayed = {rows: [4, 5, 6, 7, 0, 1, 2, 3], numPinned};
        const placed = rankscopeTimeline.placedRows(displayed, 20, scrollTop, viewHeight);
        return rankscopeTimeline.hiddenRowsText({placed, displayed, rowHeight: 20});
    }"""
    assert scripts.evaluate(call, [pinned, scroll, view]) == text


def test_callout_hides_no_text_and_few_bars(scripts: Page) -> None:
    """A row of 100 px is free from 400 to 1000, and has small bars in its second lane."""
    small = [(0, Stage.TP_ALL_REDUCE, 10 * at, 5) for at in range(40)]
    spans = made_spans((0, Stage.FORWARD_COMPUTE, 0, 400), *small)
    call = """([data, x, texts]) => {
        const timeline = rankscopeTimeline;
        const spans = timeline.decode(data);
        const tracks = timeline.tracksOf(spans);
        const shares = timeline.laneShares(spans.lanes, tracks.levels);
        const placed = [{row: 0, top: 0, from: 0, to: 100}];
        const size = {rowHeight: 100, window: [0, 1000], gutter: 0, width: 1000, height: 142};
        const view = {spans, tracks, shares, placed, texts, ...size};
        return timeline.calloutBox(view, x, [50, 110], 100);
    }"""

    def corner(x: int, *texts: tuple[int, int]) -> tuple[int, int]:
        covered = [{"x": left, "y": top, "width": 60, "height": 11} for left, top in texts]
        box = scripts.evaluate(call, [buffer_of(spans, {0: "a"}), x, covered])
        return box["x"], box["y"]

    assert corner(600) == (608, 50)
    assert corner(960) == (852, 50)
    assert corner(200) == (208, 50)
    assert corner(200, (210, 52), (130, 52)) == (208, 110)
    assert corner(960, (860, 52)) == (852, 110)


def test_narrow_table_has_no_line_breaks_in_words_and_numbers(scripts: Page) -> None:
    """Each cell is one line, and its text ends before the next cell begins."""
    for name in ("dashboard.css", "timeline.css", "hang.css"):
        scripts.add_style_tag(path=SCRIPTS.parent / name)
    texts = ("<span class='swatch'></span>embedding-grads-all-reduce", "12,144", "824 ms", "68.7 ms", "118 ms")
    cells = "".join(f"<td>{text}</td>" for text in texts)
    heads = "".join(f"<th>{text}</th>" for text in ("stage", "count", "total", "mean", "longest"))
    rows = f"<thead><tr>{heads}</tr></thead><tbody><tr>{cells}</tr></tbody>"
    table = f"<div style='width: 270px'><table class='shares area-statistics'>{rows}</table></div>"
    scripts.evaluate("html => document.body.innerHTML = html", table)
    fits = """() => [...document.querySelectorAll("th, td")].map((cell) => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        const [text, box] = [range.getBoundingClientRect(), cell.getBoundingClientRect()];
        return text.height < 22 && text.left >= box.left + 3 && text.right <= box.right - 3;
    })"""
    assert scripts.evaluate(fits) == [True] * 10
