"""Chart queries over random spans give the same results as plain Python, on both engines."""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from statistics import mean, median
from typing import Any, Literal

import pytest

from telemetry.errors import UsageError
from telemetry.stages import Stage
from telemetry.stores.interface import StoreReader
from telemetry.stores.queries import (
    HeatCells,
    Lanes,
    RankStageMeans,
    RankStageStats,
    Runs,
    Spans,
    StageCounts,
    StageSteps,
    StageTotals,
    Steps,
    StragglerScan,
)
from telemetry.stores.queries.heat_map import Peers
from telemetry.stores.queries.windows import MAX_FINE_CELLS, WINDOW_STEPS, column_steps
from tests.each_case import each_case
from tests.telemetry.either_store import ENGINES, either_store
from tests.telemetry.made_rows import insert, made

Row = dict[str, Any]
Key = tuple[int, ...]

RUN: dict[str, Any] = {"run_id": "run", "attempt": 0}
NUM_RANKS, NUM_STEPS, PP = 7, 230, 2
STEP, FORWARD, ALL_REDUCE = int(Stage.STEP), int(Stage.FORWARD_COMPUTE), int(Stage.TP_ALL_REDUCE)
STAGES = (STEP, FORWARD, int(Stage.BACKWARD_COMPUTE), int(Stage.OPTIMIZER), ALL_REDUCE)
LIMITS = ((0, NUM_STEPS - 1), (37, 37), (3, 49), (50, 149), (49, 150), (61, 212))
"""First and last steps: inside a window, whole windows, and whole windows with partial ones."""


def random_spans(draw: random.Random) -> list[Row]:
    """Ranks miss steps and stages, chunks and microbatches vary, and some spans have no processor time."""
    spans: list[Row] = []
    for rank in range(NUM_RANKS):
        for step in range(NUM_STEPS):
            if (rank, step % 11) == (4, 3):
                continue
            for stage in STAGES:
                for number in range(1 if stage == STEP else draw.randrange(4)):
                    spans.append(random_span(draw, rank, step, stage, number))
    return [{**span, "seq": seq} for seq, span in enumerate(spans)]


def random_span(draw: random.Random, rank: int, step: int, stage: int, number: int) -> Row:
    duration_ns = draw.randrange(1, 2**33)
    return {
        "rank": rank,
        "step": step,
        "stage": stage,
        "stream": int(Stage(stage).stream),
        "chunk": number % 2,
        "microbatch": number,
        "start_ns": step * 10**10 + draw.randrange(10**9),
        "duration_ns": duration_ns,
        "cpu_ns": -1 if stage == ALL_REDUCE or (rank == 2 and step == 77) else duration_ns // 2,
    }


SPANS = random_spans(random.Random(12))


@pytest.fixture(scope="module", params=ENGINES)
def reader(request: pytest.FixtureRequest) -> Iterator[StoreReader]:
    """Spans in several inserts that split steps. No answer may include rows of the other attempt."""
    with either_store(request, "pictures") as store:
        size = len(SPANS) // 3 + 1
        for first in range(0, len(SPANS), size):
            insert(store, "spans", made("spans", SPANS[first : first + size]), **RUN)
        insert(store, "spans", made("spans", SPANS[:500]), run_id="run", attempt=1)
        yield StoreReader(store)


def within(first: int, last: int, *stages: int) -> list[Row]:
    return [span for span in SPANS if first <= span["step"] <= last and (span["stage"] in stages if stages else True)]


def summed(spans: list[Row], *names: str, of: str = "duration_ns") -> dict[Key, int]:
    """Sums by some columns."""
    total: dict[Key, int] = defaultdict(int)
    for span in spans:
        total[tuple(span[name] for name in names)] += span[of]
    return dict(total)


def gathered(values: dict[Key, Any], key: Callable[[Key], Key]) -> dict[Key, list[Any]]:
    """Group values by ``key``."""
    groups: dict[Key, list[Any]] = defaultdict(list)
    for place, value in values.items():
        groups[key(place)].append(value)
    return dict(groups)


@each_case(("first", "last"), LIMITS)
def test_means_over_windows_of_any_width_are_exact(reader: StoreReader, first: int, last: int) -> None:
    chosen = within(first, last, *STAGES[:4])
    by_step = summed(chosen, "rank", "stage", "step")
    of_place = gathered(by_step, lambda key: key[:2])
    query = RankStageMeans(**RUN, first_step=first, last_step=last, stages=STAGES[:4])
    found = {(row["rank"], row["stage"]): row for row in reader.read(query).to_pylist()}
    assert {place: row["steps"] for place, row in found.items()} == {place: len(ns) for place, ns in of_place.items()}
    means = {place: mean(ns) for place, ns in of_place.items()}
    assert {place: row["mean_ns"] for place, row in found.items()} == pytest.approx(means)
    counts = summed([{**span, "one": 1} for span in chosen], "rank", "stage", of="one")
    assert {place: row["spans"] for place, row in found.items()} == counts
    whole = (2, FORWARD) not in {(span["rank"], span["stage"]) for span in chosen if span["cpu_ns"] < 0}
    assert all(
        (row["mean_cpu_ns"] >= 0) == (whole or place[0] != 2) for place, row in found.items() if row["stage"] == FORWARD
    )


def beside_peers(means: dict[Key, float], rank: int, number: int, group: Callable[[int], int]) -> float:
    """A rank's mean in a column over the median of the others of its group."""
    peers = [
        ns
        for (other, column), ns in means.items()
        if column == number and other != rank and group(other) == group(rank)
    ]
    return means[rank, number] / median(peers) if peers else math.nan


@each_case(("first", "last"), LIMITS)
@each_case(
    ("max_rows", "max_columns", "worst"),
    [
        (NUM_RANKS, 1000, "ratio"),  # each cell has one rank
        (NUM_RANKS, 24, "ratio"),
        (3, 9, "ratio"),
        (3, 9, "mean_ns"),
        (1, 2, "ratio"),
        (1, 2, "mean_ns"),
    ],
)
def test_heat_map_shows_the_worst_rank_of_each_cell(
    reader: StoreReader, first: int, last: int, max_rows: int, max_columns: int, worst: Literal["ratio", "mean_ns"]
) -> None:
    size = {"num_ranks": NUM_RANKS, "max_rows": max_rows, "max_columns": max_columns, "pp": PP}
    query = HeatCells(**RUN, stage=FORWARD, first_step=first, last_step=last, worst=worst, **size)
    width, depth = query.steps_a_column, query.ranks_a_row
    if width >= WINDOW_STEPS:
        first, last = first // width * width, last // width * width + width - 1
    by_step = summed(within(first, last, FORWARD), "rank", "step")
    means = {place: mean(ns) for place, ns in gathered(by_step, lambda key: (key[0], key[1] // width)).items()}
    cells: dict[Key, list[dict[str, float]]] = defaultdict(list)
    for (rank, number), ns in means.items():
        told = {"hottest_rank": rank, "mean_ns": ns, "ratio": beside_peers(means, rank, number, lambda one: one % PP)}
        cells[rank // depth * depth, number * width].append(told)
    rows = reader.read(query).to_pylist()
    found = {(row.pop("rank"), row.pop("step")): row for row in rows}
    assert list(found) == sorted(cells)
    hottest = [
        max(cell, key=lambda one: -1.0 if math.isnan(one[worst]) else one[worst]) for _, cell in sorted(cells.items())
    ]
    assert list(found.values()) == [pytest.approx(one, nan_ok=True) for one in hottest]
    assert len({rank for rank, _ in found}) <= max_rows
    assert len({step for _, step in found}) <= max_columns


@each_case(("peers", "group"), [("dp_group", lambda rank: rank % 4), ("tp_group", lambda rank: rank // 2)])
@each_case(("first", "last"), LIMITS)
def test_heat_map_finds_the_rank_that_its_group_waits_for(
    reader: StoreReader, first: int, last: int, peers: Peers, group: Callable[[int], int]
) -> None:
    size = {"num_ranks": NUM_RANKS, "max_rows": 1, "max_columns": 1000, "pp": 2, "tp": 2}
    query = HeatCells(**RUN, stage=FORWARD, first_step=first, last_step=last, peers=peers, worst="lead_ns", **size)
    by_step = summed(within(first, last, FORWARD), "rank", "step")
    means = {place: float(ns) for place, ns in by_step.items()}
    leads: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for (rank, step), ns in means.items():
        ratio = beside_peers(means, rank, step, group)
        leads[step].append((-math.inf if math.isnan(ratio) else ns / ratio - ns, rank))
    found = {row["step"]: row for row in reader.read(query).to_pylist()}
    assert list(found) == sorted(leads)
    for step, row in found.items():
        assert row["mean_ns"] == means[row["hottest_rank"], step]
        lead = -math.inf if math.isnan(row["ratio"]) else row["mean_ns"] / row["ratio"] - row["mean_ns"]
        assert lead == pytest.approx(max(leads[step])[0])


def test_heat_map_of_selected_ranks_keeps_their_order_and_compares_with_all_ranks(reader: StoreReader) -> None:
    size = {"num_ranks": NUM_RANKS, "max_columns": 1000, "pp": PP}
    asked: dict[str, Any] = {**RUN, "stage": FORWARD, "first_step": 3, "last_step": 49, **size}
    every = {(row["rank"], row["step"]): row for row in reader.read(HeatCells(**asked, max_rows=NUM_RANKS)).to_pylist()}
    rows = reader.read(HeatCells(**asked, max_rows=2, order=(6, 1, 4))).to_pylist()
    for row in rows:
        chosen = [
            every[rank, row["step"]] for rank in {0: (6, 1), 2: (4,)}[row["rank"]] if (rank, row["step"]) in every
        ]
        worst = max(chosen, key=lambda cell: -1.0 if math.isnan(cell["ratio"]) else cell["ratio"])
        for name in ("hottest_rank", "mean_ns", "ratio"):
            assert row[name] == pytest.approx(worst[name], nan_ok=True)
    shown = {(0 if rank != 4 else 2, step) for rank, step in every if rank in (6, 1, 4)}
    assert {(row["rank"], row["step"]) for row in rows} == shown
    for order in ((1, 1), (NUM_RANKS,)):
        with pytest.raises(UsageError, match="order is not valid"):
            HeatCells(**asked, max_rows=2, order=order)


def test_heat_map_can_show_cpu_time(reader: StoreReader) -> None:
    size = {"num_ranks": NUM_RANKS, "max_rows": NUM_RANKS, "max_columns": 1000}
    query = HeatCells(**RUN, stage=FORWARD, first_step=78, last_step=80, time="cpu_ns", **size)
    by_step = summed(within(78, 80, FORWARD), "rank", "step", of="cpu_ns")
    assert {(row["rank"], row["step"]): row["mean_ns"] for row in reader.read(query).to_pylist()} == by_step


@each_case("num_ranks", [8, 1024, 12_288, 100_000])
@each_case("num_steps", [1, 7, 600, 1000, 13_714, 10_000_000])
@each_case("max_columns", [1, 150, 600])
def test_column_width_respects_the_limits_of_columns_and_fine_cells(
    num_ranks: int, num_steps: int, max_columns: int
) -> None:
    for first in (0, 1, 49, 4096):
        last = first + num_steps - 1
        width = column_steps(first, last, num_ranks=num_ranks, max_columns=max_columns)
        assert last // width - first // width + 1 <= max_columns
        if width < WINDOW_STEPS:
            assert num_ranks * num_steps <= MAX_FINE_CELLS
        else:
            assert width % WINDOW_STEPS == 0


@pytest.mark.parametrize("time", ["duration_ns", "cpu_ns"])
def test_straggler_scan_returns_slowest_rank_and_median_of_each_stage_and_step(reader: StoreReader, time: Any) -> None:
    own = within(5, 60, *STAGES[1:4])
    ranks = defaultdict(list)
    for (stage, step, rank), ns in summed(own, "stage", "step", "rank", of=time).items():
        ranks[stage, step].append((ns, -rank))
    rows = reader.read(StragglerScan(**RUN, first_step=5, last_step=60, time=time)).to_pylist()
    found = {
        (row["stage"], row["step"]): (row["ranks"], row["slowest_rank"], row["slowest_ns"], row["median_ns"])
        for row in rows
    }
    assert found == {
        place: (len(times), -max(times)[1], max(times)[0], sorted(times)[len(times) // 2][0])
        for place, times in ranks.items()
    }
    assert list(found) == sorted(found)


def test_straggler_scan_leaves_out_small_ratios_steps_and_collectives(reader: StoreReader) -> None:
    everything = reader.read(StragglerScan(**RUN, first_step=0, last_step=99)).to_pylist()
    remarkable = reader.read(StragglerScan(**RUN, first_step=0, last_step=99, min_ratio=2.0)).to_pylist()
    assert 0 < len(remarkable) < len(everything)
    assert remarkable == [row for row in everything if row["slowest_ns"] >= 2 * row["median_ns"]]
    assert {row["stage"] for row in everything} == set(STAGES) - {STEP, ALL_REDUCE}


@each_case("newest", [1, 10, 1000])
def test_newest_steps_are_the_last_of_all_steps(reader: StoreReader, newest: int) -> None:
    everything = reader.read(Steps(**RUN)).to_pylist()
    assert len(everything) == NUM_STEPS
    assert reader.read(Steps(**RUN, newest=newest)).to_pylist() == everything[-newest:]
    assert reader.read(Steps(**RUN, last_step=99, newest=2)).to_pylist() == everything[98:100]


def test_full_lane_shows_its_longest_spans_and_counts_all_spans(reader: StoreReader) -> None:
    window = {**RUN, "first_step": 10, "last_step": 19}
    lanes = gathered(
        {(span["rank"], span["stream"], span["seq"]): span for span in within(10, 19)}, lambda key: key[:2]
    )
    shown = reader.read(Spans(**window, longest=3)).to_pylist()
    longest = {
        span["seq"]
        for spans in lanes.values()
        for span in sorted(spans, key=lambda one: (-one["duration_ns"], one["seq"]))[:3]
    }
    assert {row["seq"] for row in shown} == longest
    assert shown == sorted(shown, key=lambda row: (row["rank"], row["start_ns"], row["seq"]))
    counted = {
        (row["rank"], row["stream"]): (row["spans"], row["busy_ns"]) for row in reader.read(Lanes(**window)).to_pylist()
    }
    assert counted == {place: (len(spans), sum(one["duration_ns"] for one in spans)) for place, spans in lanes.items()}


def test_spans_that_fit_in_a_lane_are_all_returned(reader: StoreReader) -> None:
    window = {**RUN, "first_step": 10, "last_step": 12, "ranks": (1, 3)}
    assert reader.read(Spans(**window, longest=1000)).equals(reader.read(Spans(**window)))


@each_case(("first", "last"), LIMITS)
def test_sums_and_counts_of_stages_equal_those_of_the_spans(reader: StoreReader, first: int, last: int) -> None:
    window, chosen = {**RUN, "first_step": first, "last_step": last}, within(first, last)
    by_chunk = summed(chosen, "step", "rank", "stage", "chunk")
    totals = reader.read(StageTotals(**window)).to_pylist()
    assert {
        tuple(row[name] for name in ("step", "rank", "stage", "chunk")): row["duration_ns"] for row in totals
    } == by_chunk
    counts = reader.read(StageCounts(**window)).to_pylist()
    assert {(row["stage"],): row["duration_ns"] for row in counts} == summed(chosen, "stage")
    assert sum(row["spans"] for row in counts) == len(chosen)
    by_stage = reader.read(StageSteps(**window)).to_pylist()
    assert {(row["step"], row["stage"]): row["duration_ns"] for row in by_stage} == summed(chosen, "step", "stage")
    assert sum(row["spans"] for row in by_stage) == len(chosen)
    ranks_of = {(row["step"], row["stage"]): row["ranks"] for row in by_stage}
    assert sum(ranks_of.values()) == len(summed(chosen, "step", "stage", "rank"))
    by_step = summed(chosen, "rank", "stage", "step")
    medians = {place: sorted(ns)[len(ns) // 2] for place, ns in gathered(by_step, lambda key: key[:2]).items()}
    stats = reader.read(RankStageStats(**window)).to_pylist()
    assert {(row["rank"], row["stage"]): row["median_ns"] for row in stats} == medians


def test_stage_counts_without_a_window_equal_those_of_the_widest_window(reader: StoreReader) -> None:
    assert reader.read(StageCounts(**RUN)).equals(reader.read(StageCounts(**RUN, last_step=NUM_STEPS)))


def test_a_run_lasts_from_its_first_step_span_to_the_end_of_its_last(reader: StoreReader) -> None:
    steps = within(0, NUM_STEPS, STEP)
    (run,) = [row for row in reader.read(Runs()).to_pylist() if row["attempt"] == 0]
    assert run["started_ns"] == min(span["start_ns"] for span in steps)
    assert run["last_ns"] == max(span["start_ns"] + span["duration_ns"] for span in steps)
    assert (run["first_step"], run["last_step"]) == (0, NUM_STEPS - 1)
