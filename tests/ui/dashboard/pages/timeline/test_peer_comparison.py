"""The comparison of a span with the same stage on other ranks, and its transfer rate."""

import re
from dataclasses import replace

import numpy as np
import pytest

from telemetry.stages import Stage
from tests.each_case import each_case
from tests.ui.few_spans import made_facts, made_spans
from tests.ui.words_of_pages import texts
from ui.dashboard.components import written
from ui.dashboard.data import Reads
from ui.dashboard.pages.timeline.page import PAGE
from ui.dashboard.pages.timeline.peer_comparison import peer_comparison
from ui.dashboard.pages.timeline.selection import selection, spans
from ui.dashboard.records import RunFacts, SpanColumns
from ui.dashboard.view_state import Group, SpanKey, View, ViewState
from ui.dashboard.wording import unbroken

STATE = ViewState(view=View.TIMELINE, run="made", group=Group.ALL, rank=5, step=20)
SLOW, ITS_PARTNER = 5, 4


def details(rank: int, stage: Stage, reads: Reads) -> str:
    """The details of the first span of a stage in the first microbatch."""
    loaded = spans(selection(STATE, reads), reads)
    row = np.flatnonzero((loaded.rank == rank) & (loaded.stage == stage) & (loaded.microbatch <= 0))[0]
    state = replace(STATE, span=SpanKey(rank, int(loaded.seq[row])))
    return " ".join(texts(written(PAGE.regions["details"].draw(state, reads))))


def compared(stage: Stage, facts: RunFacts, **more: list[int]) -> str:
    """Two spans of rank 0, of 10 us each, and one span of rank 1, of 80 us."""
    same_work = made_spans((0, stage, 0, 10_000), (0, stage, 20_000, 10_000), (1, stage, 0, 80_000), **more)
    chosen: SpanColumns = same_work.where(np.array([0]))
    return " ".join(texts(written(peer_comparison(chosen, same_work, facts))))


def test_bar_of_several_spans_is_named_as_their_sum() -> None:
    words = compared(Stage.FORWARD_COMPUTE, made_facts(2), cpu_ns=[-1] * 3, microbatch=[2] * 3)
    assert "Sum of the 2 spans of this stage in microbatch 2: wall time, including waiting." in words
    assert "0.25x its peers" in words
    one = compared(Stage.FORWARD_COMPUTE, made_facts(2), cpu_ns=[-1] * 3, microbatch=[0, 1, 0])
    assert "Microbatch 0: wall time" in one


@pytest.mark.parametrize("stage", [Stage.TP_ALL_REDUCE, Stage.EMBEDDING_GRADS_ALL_REDUCE])
def test_collective_has_no_ratio_because_the_rank_that_others_wait_for_has_the_shortest_time(stage: Stage) -> None:
    """Also if the processor time was measured."""
    words = compared(stage, made_facts(2), cpu_ns=[9] * 3)
    assert "x its peers" not in words
    assert f"{unbroken('20 µs')}; median of its peers: {unbroken('80 µs')} " in words
    assert "the last rank to start has the shortest time: the others waited for it" in words


def test_long_transfer_is_explained_by_its_partner() -> None:
    words = compared(Stage.FORWARD_RECV, made_facts(2))
    assert "A long time can be waiting for the other rank" in words
    assert "shortest" not in words


@each_case(
    ("pp", "roles", "peers"),
    [
        (1, (), "all other ranks"),
        (2, (), "the same pipeline stage"),
        (1, ("actor", "learner"), "the same role"),
        (2, ("actor", "learner"), "the same pipeline stage and role"),
    ],
)
def test_peers_are_named_as_they_were_chosen(pp: int, roles: tuple[str, ...], peers: str) -> None:
    facts = made_facts(2)
    facts = replace(facts, topology=replace(facts.topology, dp=2 // pp, pp=pp, mesh=()), roles=roles)
    assert f"Peers: {peers}." in compared(Stage.FORWARD_COMPUTE, facts)


def test_slow_rank_has_a_ratio_in_compute_and_the_shortest_time_in_its_collective(reads: Reads) -> None:
    assert re.search(r"1\.[34]\dx its peers", details(SLOW, Stage.FORWARD_COMPUTE, reads))
    times = re.search(r"([\d.]+)\sms; median of its peers: ([\d.]+)\sms", details(SLOW, Stage.TP_ALL_GATHER, reads))
    assert times is not None
    assert float(times[1]) < float(times[2])


def test_transfer_rate_does_not_count_the_wait_and_is_a_lower_bound(reads: Reads) -> None:
    """Both members of a collective end together. So their rates are equal, although one of them waited."""
    rates = [
        re.search(r"transfer rate, at least ([\d.]+) GB/s", details(rank, Stage.TP_ALL_GATHER, reads))
        for rank in (SLOW, ITS_PARTNER)
    ]
    assert rates[0] is not None
    assert rates[1] is not None
    assert rates[0][1] == rates[1][1]
    assert "at most" not in details(SLOW, Stage.TP_ALL_GATHER, reads)
