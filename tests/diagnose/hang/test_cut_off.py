"""A job that stands still while a link is down: the link's fault, a flap while it may come back, a hang when it does
not; and never a rank's that waits."""

import json
from typing import Any

import pytest

from diagnose.findings import Kind, Severity
from diagnose.hang.stored import stored_verdict
from diagnose.hang.verdict import HangVerdict, hang_finding
from telemetry.host_metrics import Happening
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.diagnose.hang.made_states import GRID, NOW_NS, SINCE_NS, behind_in_tp, operation, state
from tests.telemetry.made_rows import insert, made

RUN = "cut"
SECOND_NS = 1_000_000_000
CUT_OFF = (4, 5, 6, 7)
"""Ranks of host-1: one replica of the grid."""


@pytest.fixture
def store(embedded: EmbeddedStore) -> EmbeddedStore:
    return embedded


def all_in_reduction() -> dict[int, dict[str, Any]]:
    """Everybody has entered the reduction over both replicas, and nobody ends it."""
    reduction = operation("dp", "grads-reduce-scatter", 6, 5)
    return {rank: state(rank, "grads-reduce-scatter", [reduction]) for rank in range(GRID.world_size)}


def verdict(
    store: EmbeddedStore,
    states: dict[int, dict[str, Any]],
    *,
    down_after_s: float = -1.0,
    up_after_s: float | None = None,
    host: str = "host-1",
    timeout_s: str = "600",
    seen_after_s: float = 0.0,
    **beat: Any,
) -> HangVerdict | None:
    """Times in seconds: of the link from the moment the job stopped, of the last look from when evidence was taken."""
    bodies = (
        {"rank": rank, "at_ns": one["at_ns"], "kind": "state", "body": json.dumps(one)} for rank, one in states.items()
    )
    insert(store, "evidence", made("evidence", bodies), run_id=RUN)
    usual = {"at_ns": NOW_NS + round(seen_after_s * SECOND_NS), "step": 7, "recorded": 900, "alive": 1, **beat}
    insert(store, "heartbeats", made("heartbeats", [{"rank": rank, **usual} for rank in range(8)]), run_id=RUN)
    meta = json.dumps({"backend": "gloo", "collective_timeout_s": timeout_s})
    grid = {"dp_size": 2, "pp_size": 2, "tp_size": 2, "meta": meta}
    insert(store, "ranks", made("ranks", [{"rank": rank, **grid} for rank in range(8)]), run_id=RUN)
    changes = [(Happening.LINK_DOWN, down_after_s)]
    changes += [] if up_after_s is None else [(Happening.LINK_UP, up_after_s)]
    events = [
        {"host": host, "device": "eth0", "name": str(name), "at_ns": SINCE_NS + round(after_s * SECOND_NS)}
        for name, after_s in changes
    ]
    insert(store, "host_events", made("host_events", events), run_id=RUN)
    return stored_verdict(StoreReader(store), RUN, 0)


def test_while_the_link_may_come_back_it_is_a_flap_of_that_card(store: EmbeddedStore) -> None:
    found = verdict(store, all_in_reduction(), down_after_s=2.0)
    assert found is not None
    assert (found.kind, found.initiating) == (Kind.NIC_FLAP, CUT_OFF)
    assert "eth0 of host-1 lost its link 58.0 s ago" in found.headline
    assert "600 s" in found.headline
    finding = hang_finding(found)
    assert finding is not None
    assert (finding.hosts, finding.evidence["device"]) == (["host-1"], "eth0")
    assert finding.severity is Severity.CRITICAL


def test_a_link_that_stays_down_is_a_hang_with_the_card_as_its_cause(store: EmbeddedStore) -> None:
    found = verdict(store, all_in_reduction(), seen_after_s=120)
    assert found is not None
    assert (found.kind, found.initiating) == (Kind.HUNG_COLLECTIVE, CUT_OFF)
    assert "eth0 of host-1" in found.headline


def test_the_jobs_own_timeout_ends_the_wait_for_a_flap(store: EmbeddedStore) -> None:
    found = verdict(store, all_in_reduction(), timeout_s="30")
    assert found is not None
    assert found.kind is Kind.HUNG_COLLECTIVE


@pytest.mark.parametrize("beat", [{"ended": 2, "recorded": 907}, {"alive": 0}], ids=["errors", "deaths"])
def test_when_ranks_give_up_over_it_the_card_stays_the_cause(store: EmbeddedStore, beat: dict[str, Any]) -> None:
    found = verdict(store, all_in_reduction(), down_after_s=2.0, up_after_s=300, seen_after_s=400, **beat)
    assert found is not None
    assert (found.kind, found.initiating) == (Kind.HUNG_COLLECTIVE, CUT_OFF)
    assert "then aborted" in found.headline


def test_a_job_that_goes_on_after_the_flap_has_no_verdict(store: EmbeddedStore) -> None:
    span = {"stage": int(Stage.STEP), "step": 7, "start_ns": SINCE_NS, "duration_ns": NOW_NS - SINCE_NS}
    insert(store, "spans", made("spans", ({"rank": rank, **span} for rank in range(8))), run_id=RUN)
    assert verdict(store, all_in_reduction(), up_after_s=30, seen_after_s=5, step=8) is None


def test_just_after_the_link_is_back_it_is_still_a_flap(store: EmbeddedStore) -> None:
    found = verdict(store, all_in_reduction(), up_after_s=50)
    assert found is not None
    assert found.kind is Kind.NIC_FLAP
    assert "is up again" in found.headline
    finding = hang_finding(found)
    assert finding is not None
    assert finding.severity is Severity.INFO


def test_a_job_that_stands_still_again_while_connections_recover_one_by_one_is_no_hang_yet(
    store: EmbeddedStore,
) -> None:
    """The link was away for 57 s; the job has gone on a little since, and others try again by 62 s."""
    found = verdict(store, all_in_reduction(), down_after_s=-58.0, up_after_s=-0.5)
    assert found is not None
    assert (found.kind, found.initiating) == (Kind.NIC_FLAP, CUT_OFF)
    assert "is up again" in found.headline


def test_a_link_that_was_away_for_so_long_that_the_job_does_without_it_explains_no_later_hang(
    store: EmbeddedStore,
) -> None:
    found = verdict(store, all_in_reduction(), down_after_s=-310.0, up_after_s=-10.0)
    assert found is not None
    assert (found.kind, found.initiating, found.cut_off) == (Kind.HUNG_COLLECTIVE, (), None)


def test_once_all_connections_should_have_recovered_a_link_that_is_back_explains_nothing(store: EmbeddedStore) -> None:
    found = verdict(store, all_in_reduction(), down_after_s=-58.0, up_after_s=-0.5, seen_after_s=60.0)
    assert found is not None
    assert (found.kind, found.cut_off) == (Kind.HUNG_COLLECTIVE, None)


@pytest.mark.parametrize(
    "times",
    [
        {"down_after_s": -3_600.0},
        {"down_after_s": 40.0},
        {"down_after_s": -1.0, "up_after_s": 2.0},
        {"down_after_s": -1.0, "host": "storage-3"},
    ],
    ids=["lost long before", "lost long after", "back for long", "of a host without ranks"],
)
def test_a_link_that_does_not_explain_it_is_not_accused(store: EmbeddedStore, times: dict[str, Any]) -> None:
    found = verdict(store, all_in_reduction(), **times)
    assert found is not None
    assert found.cut_off is None
    assert (found.kind, found.initiating) == (Kind.HUNG_COLLECTIVE, ())


def killed(rank: int, *, after_s: float, ended_by: str = "SIGKILL") -> dict[int, dict[str, Any]]:
    """All wait in the reduction; ``rank`` died so long after the job stopped."""
    states = all_in_reduction()
    died_ns = SINCE_NS + round(after_s * SECOND_NS)
    states[rank] |= {"process": "dead", "living": "alive", "died_ns": died_ns, "ended_by": ended_by}
    return states


def test_a_rank_that_is_killed_while_a_link_is_down_is_the_dead_rank(store: EmbeddedStore) -> None:
    found = verdict(store, killed(2, after_s=1), alive=1)
    assert found is not None
    assert (found.kind, found.initiating, found.cut_off) == (Kind.DEAD_RANK, (2,), None)


def test_a_rank_that_dies_after_a_flap_that_the_job_lived_through_is_not_put_down_to_it(store: EmbeddedStore) -> None:
    found = verdict(store, killed(2, after_s=1, ended_by="exit 1"), down_after_s=-20.0, up_after_s=-19.8)
    assert found is not None
    assert (found.kind, found.initiating, found.cut_off) == (Kind.DEAD_RANK, (2,), None)


def test_the_watchdogs_abort_of_all_ranks_leaves_the_link_the_cause(store: EmbeddedStore) -> None:
    states = all_in_reduction()
    for one in states.values():
        one |= {"process": "dead", "living": "alive", "died_ns": SINCE_NS + 30 * SECOND_NS, "ended_by": "SIGABRT"}
    found = verdict(store, states, alive=0)
    assert found is not None
    assert (found.kind, found.initiating) == (Kind.HUNG_COLLECTIVE, CUT_OFF)


def test_a_rank_that_stands_in_its_own_work_is_not_excused_by_a_link(store: EmbeddedStore) -> None:
    found = verdict(store, behind_in_tp(3))
    assert found is not None
    assert (found.cut_off, found.initiating) == (None, (3,))
