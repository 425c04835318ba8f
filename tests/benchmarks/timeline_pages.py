"""The timeline's page as its user opens it: from the address to drawn spans, and what travels for it."""

from collections.abc import Iterator

import numpy as np
from playwright.sync_api import Browser, BrowserContext, Response

from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.reader import StoreReader
from telemetry.topology import Topology
from tests.benchmarks.figures import Figure
from tests.benchmarks.made_spans import FIRST_NS, MadeJob
from tests.memory_store import memory_store
from tests.telemetry.made_rows import insert, made
from tests.ui.served_dashboard import serving
from tests.ui.synthetic_run import SyntheticRun

TURNS = 7
LARGE = Topology(dp=64, pp=24, tp=8)
LARGE_STEPS = 12
RANKS_A_HOST = 8
SMALL_MS, LARGE_MS, LARGE_MB = 700.0, 1000.0, 1.5
DRAWN = "() => document.querySelector('.span-timeline')?.dataset.drawn && performance.now()"
COMPLETE = "() => !document.querySelector('main .loading, main .waiting')"
SMALL_SEARCH = "?view=timeline&run=small&group=all&rank=0"
LARGE_SEARCH = "?view=timeline&run=large&group=dp&rank=4001"


def page_figures(browser: Browser) -> Iterator[Figure]:
    """A run of eight ranks, then a group of 64 ranks of a run of 12,288."""
    with memory_store() as store, serving(StoreReader(store)) as address:
        small = SyntheticRun(run_id="small")
        small.introduce(store)
        small.advance(store, 40)
        times, megabytes = _opened(browser, address + SMALL_SEARCH)
        yield _figure("page of 8 ranks", times, SMALL_MS, f"{max(megabytes):.2f} MB a view")
        _write_large(store)
        times, megabytes = _opened(browser, address + LARGE_SEARCH)
        yield _figure("page of 64 of 12,288 ranks", times, LARGE_MS, f"{LARGE_STEPS} steps stored")
        yield Figure(
            name="64 of 12,288 ranks: all answers of a view",
            value=max(megabytes),
            unit="MB",
            bound=LARGE_MB,
            note="before compression",
        )


def _opened(browser: Browser, address: str) -> tuple[list[float], list[float]]:
    """Milliseconds and megabytes of each turn; a first one, that fills the browser's cache, is left out."""
    with browser.new_context(viewport={"width": 1440, "height": 1000}) as context:
        looks = [_look(context, f"{address}&step={turn + 2}") for turn in range(1 + TURNS)]
    return [one for one, _ in looks[1:]], [one for _, one in looks[1:]]


def _look(context: BrowserContext, address: str) -> tuple[float, float]:
    page = context.new_page()
    page.set_default_timeout(120_000)
    answers: list[Response] = []
    page.on("response", lambda answer: answers.append(answer) if "_dash-update-component" in answer.url else None)
    page.goto(address)
    drawn_ms = page.wait_for_function(DRAWN).json_value()
    page.wait_for_function(COMPLETE)
    megabytes = sum(len(answer.body()) for answer in answers if answer.status == 200) / 1e6
    page.close()
    return float(drawn_ms), megabytes


def _write_large(store: EmbeddedStore) -> None:
    rows = [
        {
            "rank": rank,
            "host": f"host-{rank // RANKS_A_HOST}",
            "local_rank": rank % RANKS_A_HOST,
            "dp_size": LARGE.dp,
            "pp_size": LARGE.pp,
            "tp_size": LARGE.tp,
            "started_ns": FIRST_NS,
        }
        for rank in range(LARGE.world_size)
    ]
    insert(store, "ranks", made("ranks", rows), run_id="large")
    for block in MadeJob(num_ranks=LARGE.world_size, num_steps=LARGE_STEPS).blocks(1):
        insert(store, "spans", block, run_id="large")


def _figure(name: str, times_ms: list[float], bound_ms: float, note: str) -> Figure:
    median, low, high = np.percentile(times_ms, (50, 10, 90)).tolist()
    return Figure(
        name=f"{name}: address to drawn spans",
        value=median,
        low=low,
        high=high,
        unit="ms",
        bound=bound_ms,
        note=note,
    )
