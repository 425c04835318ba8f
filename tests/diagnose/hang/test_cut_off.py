"""Stalls while a link is down: a flap while the link may come back, and a hang if it stays down.

The verdict names the ranks of the host that lost its link.
"""

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
    """All ranks have entered the reduction over both replicas, and none has finished it."""
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
    """Store a stall and return its verdict.

    Times of the link count from the moment the job stopped. The heartbeats are ``seen_after_s`` later
    than the evidence.
    """
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


def test_stall_is_a_nic_flap_while_the_link_may_come_back(store: EmbeddedStore) -> None:
    found = verdict(store, all_in_reduction(), down_after_s=2.0)
    assert found is not None
    assert (found.kind, found.initiating) == (Kind.NIC_FLAP, CUT_OFF)
    assert "eth0 of host-1 lost its link 58.0 s ago" in found.headline
    assert "600 s" in found.headline
    finding = hang_finding(found)
    assert finding is not None
    assert (finding.hosts, finding.evidence["device"]) == (["host-1"], "eth0")
    assert finding.severity is Severity.CRITICAL


def test_stall_is_a_hang_caused_by_the_nic_when_the_link_stays_down(store: EmbeddedStore) -> None:
    found = verdict(store, all_in_reduction(), seen_after_s=120)
    assert found is not None
    assert (found.kind, found.initiating) == (Kind.HUNG_COLLECTIVE, CUT_OFF)
    assert "eth0 of host-1" in found.headline


def test_stall_is_a_hang_when_the_link_is_down_longer_than_the_collective_timeout(store: EmbeddedStore) -> None:
    found = verdict(store, all_in_reduction(), timeout_s="30")
    assert found is not None
    assert found.kind is Kind.HUNG_COLLECTIVE


@pytest.mark.parametrize("beat", [{"ended": 2, "recorded": 907}, {"alive": 0}], ids=["errors", "deaths"])
def test_nic_remains_the_cause_when_the_ranks_abort_after_the_link_loss(
    store: EmbeddedStore, beat: dict[str, Any]
) -> None:
    found = verdict(store, all_in_reduction(), down_after_s=2.0, up_after_s=300, seen_after_s=400, **beat)
    assert found is not None
    assert (found.kind, found.initiating) == (Kind.HUNG_COLLECTIVE, CUT_OFF)
    assert "then aborted" in found.headline


def test_no_verdict_when_the_job_makes_progress_after_the_flap(store: EmbeddedStore) -> None:
    span = {"stage": int(Stage.STEP), "step": 7, "start_ns": SINCE_NS, "duration_ns": NOW_NS - SINCE_NS}
    insert(store, "spans", made("spans", ({"rank": rank, **span} for rank in range(8))), run_id=RUN)
    assert verdict(store, all_in_reduction(), up_after_s=30, seen_after_s=5, step=8) is None


def test_stall_is_a_nic_flap_of_severity_info_just_after_the_link_is_up_again(store: EmbeddedStore) -> None:
    found = verdict(store, all_in_reduction(), up_after_s=50)
    assert found is not None
    assert found.kind is Kind.NIC_FLAP
    assert "is up again" in found.headline
    finding = hang_finding(found)
    assert finding is not None
    assert finding.severity is Severity.INFO


def test_second_stall_is_a_nic_flap_while_connections_recover_after_the_link_is_up(
    store: EmbeddedStore,
) -> None:
    """The link was down for 57 s. The job has made some progress since. Other connections retry within 62 s."""
    found = verdict(store, all_in_reduction(), down_after_s=-58.0, up_after_s=-0.5)
    assert found is not None
    assert (found.kind, found.initiating) == (Kind.NIC_FLAP, CUT_OFF)
    assert "is up again" in found.headline


def test_hang_is_not_explained_by_a_long_link_loss_that_ended_before_it(
    store: EmbeddedStore,
) -> None:
    found = verdict(store, all_in_reduction(), down_after_s=-310.0, up_after_s=-10.0)
    assert found is not None
    assert (found.kind, found.initiating, found.cut_off) == (Kind.HUNG_COLLECTIVE, (), None)


def test_hang_is_not_explained_by_a_link_after_all_connections_had_time_to_recover(store: EmbeddedStore) -> None:
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
def test_link_loss_is_not_named_when_its_time_or_host_does_not_explain_the_hang(
    store: EmbeddedStore, times: dict[str, Any]
) -> None:
    found = verdict(store, all_in_reduction(), **times)
    assert found is not None
    assert found.cut_off is None
    assert (found.kind, found.initiating) == (Kind.HUNG_COLLECTIVE, ())


def killed(rank: int, *, after_s: float, ended_by: str = "SIGKILL") -> dict[int, dict[str, Any]]:
    """All ranks wait in the reduction. ``rank`` died ``after_s`` seconds after the job stopped."""
    states = all_in_reduction()
    died_ns = SINCE_NS + round(after_s * SECOND_NS)
    states[rank] |= {"process": "dead", "living": "alive", "died_ns": died_ns, "ended_by": ended_by}
    return states


def test_rank_killed_while_a_link_is_down_is_reported_as_dead_rank(store: EmbeddedStore) -> None:
    found = verdict(store, killed(2, after_s=1), alive=1)
    assert found is not None
    assert (found.kind, found.initiating, found.cut_off) == (Kind.DEAD_RANK, (2,), None)


def test_rank_that_dies_after_a_flap_that_the_job_survived_is_reported_as_dead_rank(store: EmbeddedStore) -> None:
    found = verdict(store, killed(2, after_s=1, ended_by="exit 1"), down_after_s=-20.0, up_after_s=-19.8)
    assert found is not None
    assert (found.kind, found.initiating, found.cut_off) == (Kind.DEAD_RANK, (2,), None)


def test_link_remains_the_cause_when_the_watchdog_aborts_all_ranks(store: EmbeddedStore) -> None:
    states = all_in_reduction()
    for one in states.values():
        one |= {"process": "dead", "living": "alive", "died_ns": SINCE_NS + 30 * SECOND_NS, "ended_by": "SIGABRT"}
    found = verdict(store, states, alive=0)
    assert found is not None
    assert (found.kind, found.initiating) == (Kind.HUNG_COLLECTIVE, CUT_OFF)


def test_rank_that_stopped_in_compute_is_named_although_a_link_is_down(store: EmbeddedStore) -> None:
    found = verdict(store, behind_in_tp(3))
    assert found is not None
    assert (found.cut_off, found.initiating) == (None, (3,))
