"""The clocks of a run without a stored estimate: the same on all pages, and estimated once."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from telemetry.clocks import windows
from telemetry.clocks.windows import end_of_window
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.diagnose.trace.stored_runs import refuse
from tests.each_case import each_case
from tests.memory_store import memory_store
from tests.telemetry.clocks.simulated_hosts import RUN, put, simulated
from tests.ui.counting import Counting
from tests.ui.synthetic_run import SyntheticRun
from tests.ui.words_of_pages import texts
from ui.dashboard.components import written
from ui.dashboard.data import Reads
from ui.dashboard.data.clocks import ESTIMATE_AGE_NS, clocks_now, clocks_of_steps
from ui.dashboard.pages.timeline.page import PAGE
from ui.dashboard.pages.timeline.selection import aligned, selection
from ui.dashboard.view_state import Group, StepRange, View, ViewState
from ui.dashboard.wording import duration

SHOWN = ViewState(view=View.TIMELINE, run=RUN, group=Group.ALL, rank=0, step=20)
ALL = tuple(range(16))


@pytest.fixture(scope="module")
def store() -> Iterator[EmbeddedStore]:
    """Sixteen ranks on four hosts, whose clocks are up to five seconds off. No collector stored an estimate."""
    with memory_store() as store:
        put(simulated(), store)
        yield store


@pytest.fixture
def counting(store: EmbeddedStore) -> Counting:
    return Counting(StoreReader(store))


def test_timeline_uses_the_clocks_of_the_clock_page(counting: Counting) -> None:
    reads = Reads(counting)
    shown = selection(SHOWN, reads)
    now = clocks_now(reads, shown.facts)
    table = clocks_of_steps(reads, shown.facts, shown.steps, ALL)
    offsets = {clock.host: clock.offset_ns for clock in now.clocks}
    assert max(map(abs, offsets.values())) > 10**9
    for clock in now.clocks:
        shift = table.shift(clock.host, (clock.first_ns + clock.last_ns) // 2)
        assert shift is not None
        assert (shift.offset_ns, shift.bound_ns) == (clock.offset_ns, clock.bound_ns)
    one_clock = aligned(shown, reads)
    assert one_clock.note == f"Clocks of 4 hosts aligned within ±{duration(max(c.bound_ns for c in now.clocks))}."
    ends = one_clock.spans.where(one_clock.spans.stage == Stage.GRADS_REDUCE_SCATTER)
    first_ranks = ends.where(np.isin(ends.rank, (0, 4, 8, 12)))
    assert np.ptp(first_ranks.end_ns) < 200_000, "a collective ends on all hosts at the same time"


def test_clocks_are_estimated_once_for_all_pages_and_steps_of_a_window(counting: Counting) -> None:
    reads = Reads(counting)
    for step in (20, 21, 5):
        state = replace(SHOWN, step=step)
        PAGE.regions["spans-title"].draw(state, reads)
        PAGE.regions["details"].draw(state, reads)
    clocks_now(reads, reads.facts(SHOWN))
    assert counting.asked["MeetingSpans"] == once_estimated(counting)


def once_estimated(counting: Counting) -> int:
    """The number of queries about spans that one estimate needs."""
    fresh = Counting(counting)
    reads = Reads(fresh)
    clocks_now(reads, reads.facts(SHOWN))
    return fresh.asked["MeetingSpans"]


def test_rows_of_one_host_need_no_estimate(counting: Counting) -> None:
    reads = Reads(counting)
    one_host = replace(SHOWN, group=Group.TP)
    assert aligned(selection(one_host, reads), reads).note == ""
    assert counting.asked["MeetingSpans"] == 0


def test_clocks_of_an_early_step_come_from_its_own_window(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes about 0.5 s. So a window of two seconds has four or eight steps."""
    monkeypatch.setattr(windows, "WINDOW_S", 2.0)
    reads = Reads(counting)
    facts = reads.facts(SHOWN)
    now = clocks_now(reads, facts)
    early = clocks_of_steps(reads, facts, StepRange(3, 3), ALL)
    late = clocks_of_steps(reads, facts, StepRange(31, 31), ALL)
    at_ns = int(facts.steps.start_ns[3])
    exact, far = early.shift("gpu-001", at_ns), late.shift("gpu-001", at_ns)
    assert exact is not None
    assert far is not None
    assert far.bound_ns > exact.bound_ns, "the bound grows with the distance to the window"
    assert late.shift("gpu-001", now.clocks[1].last_ns) is not None


def test_refused_clocks_of_a_collector_are_not_estimated_again() -> None:
    with memory_store() as store:
        put(simulated(), store)
        refuse(store, RUN, last_step=31)
        counting = Counting(StoreReader(store))
        title = " ".join(texts(written(PAGE.regions["spans-title"].draw(SHOWN, Reads(counting)))))
        assert "Clocks of 4 hosts are not aligned" in title
        assert counting.asked["MeetingSpans"] == 0


def test_clocks_of_a_live_run_are_estimated_as_often_as_a_collector_estimates_them() -> None:
    with memory_store() as store:
        run = SyntheticRun(run_id="live")
        run.introduce(store)
        counting = Counting(StoreReader(store))
        now_s = [0.0]
        reads = Reads(counting, wall_s=lambda: now_s[0])
        state = ViewState(view=View.TIMELINE, run="live", group=Group.ALL, rank=0)

        def estimates(after_s: float) -> int:
            """Queries of estimates for the newest step, after more steps."""
            run.advance(store, 2)
            run.beat(store, at_ns=int(after_s * 1e9))
            now_s[0] = after_s
            before = counting.asked["MeetingSpans"]
            aligned(selection(state, reads), reads)
            return counting.asked["MeetingSpans"] - before

        age_s = ESTIMATE_AGE_NS / 1e9
        begin_s = (run.started_ns / 1e9 // age_s + 1) * age_s
        assert estimates(begin_s) > 0
        assert estimates(begin_s + age_s - 5) == 0
        assert estimates(begin_s + age_s + 1) > 0


@each_case(
    ("step", "step_s", "newest", "last"),
    [(0, 1.0, 1000, 63), (63, 1.0, 1000, 63), (64, 1.0, 1000, 127), (64, 1.0, 100, 100), (5, 100.0, 9, 5)],
)
def test_window_has_a_power_of_two_steps_that_last_a_minute(step: int, step_s: float, newest: int, last: int) -> None:
    assert end_of_window(step, step_s * 1e9, newest) == last
