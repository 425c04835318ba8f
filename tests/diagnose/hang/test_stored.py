"""The verdict on stored evidence. It is None after the ranks have made progress."""

import json
from typing import Any

import pytest

from diagnose.findings import Kind, Severity
from diagnose.hang.stored import stored_verdict
from diagnose.hang.verdict import hang_finding
from diagnose.report import hang_object
from telemetry.stages import Stage
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.interface import StoreReader
from tests.diagnose.hang.made_dumps import waiting
from tests.diagnose.hang.made_states import NOW_NS, SINCE_NS, behind_in_tp, operation, state
from tests.telemetry.made_rows import insert, made

RUN = "stalled"
SECOND_NS = 1_000_000_000
STEP_BEGAN_NS = SINCE_NS - 10


@pytest.fixture
def store(embedded: EmbeddedStore) -> EmbeddedStore:
    return embedded


def _put_states(store: EmbeddedStore, states: dict[int, dict[str, Any]]) -> None:
    rows = (
        {"rank": rank, "at_ns": one["at_ns"], "kind": "state", "body": json.dumps(one)} for rank, one in states.items()
    )
    insert(store, "evidence", made("evidence", rows), run_id=RUN)


def _beat(store: EmbeddedStore, **values: Any) -> None:
    """A heartbeat of each rank, a second after the evidence was taken."""
    usual = {"at_ns": NOW_NS + 1_000_000_000, "step": 7, "recorded": 900, "alive": 1}
    rows = ({"rank": rank, **usual, **values} for rank in range(8))
    insert(store, "heartbeats", made("heartbeats", rows), run_id=RUN)


def _named_ranks(store: EmbeddedStore) -> tuple[int, ...] | None:
    verdict = stored_verdict(StoreReader(store), RUN, 0)
    return None if verdict is None else verdict.initiating


def _complete(store: EmbeddedStore, step: int, start_ns: int, duration_ns: int) -> None:
    """Store the span of a completed step for each rank."""
    span = {"stage": int(Stage.STEP), "step": step, "start_ns": start_ns, "duration_ns": duration_ns}
    insert(store, "spans", made("spans", ({"rank": rank, **span} for rank in range(8))), run_id=RUN)


def _between_steps(states: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {rank: {**one, "open": one["open"][1:]} for rank, one in states.items()}


def test_stored_stall_names_the_culprit_while_the_ranks_make_no_progress(store: EmbeddedStore) -> None:
    _put_states(store, behind_in_tp(3))
    _beat(store)
    assert _named_ranks(store) == (3,)


@pytest.mark.parametrize(
    ("step", "beat_step"), [(7, 8), (8, 9), (2, 3)], ids=["the stalled step", "a later step", "a step done again"]
)
def test_stored_stall_is_cleared_when_a_step_completes_after_it(
    store: EmbeddedStore, step: int, beat_step: int
) -> None:
    _put_states(store, behind_in_tp(3))
    _beat(store, step=beat_step)
    _complete(store, step, STEP_BEGAN_NS, 70 * SECOND_NS)
    assert _named_ranks(store) is None


@pytest.mark.parametrize(
    "values",
    [
        *({"ended": 2, "recorded": 905}, {"ended": 1, "recorded": 905}, {"alive": 0}),
        *({"recorded": 901}, {"step": 8, "recorded": 905}),
    ],
    ids=["errors", "Ctrl-C", "kill -9", "ranks that unwind", "a loop that catches the error"],
)
def test_stored_stall_remains_when_ranks_end_or_continue_without_completing_a_step(
    store: EmbeddedStore, values: dict[str, Any]
) -> None:
    _complete(store, 6, STEP_BEGAN_NS - SECOND_NS, SECOND_NS)
    _put_states(store, behind_in_tp(3))
    _beat(store, **values)
    assert _named_ranks(store) == (3,)


@pytest.mark.parametrize("values", [{"ended": 2}, {"alive": 0}], ids=["errors", "deaths"])
def test_stored_stall_remains_when_an_older_recorder_closed_the_step_as_the_ranks_died(
    store: EmbeddedStore, values: dict[str, Any]
) -> None:
    _put_states(store, behind_in_tp(3))
    _complete(store, 7, STEP_BEGAN_NS, 180 * SECOND_NS)
    _beat(store, recorded=905, **values)
    assert _named_ranks(store) == (3,)


def test_stored_stall_is_cleared_when_the_last_step_completes_late_and_the_job_ends_normally(
    store: EmbeddedStore,
) -> None:
    _put_states(store, behind_in_tp(3))
    _complete(store, 7, STEP_BEGAN_NS, 70 * SECOND_NS)
    _beat(store, recorded=905, ended=1)
    assert _named_ranks(store) is None


def test_stored_stall_is_cleared_when_ranks_make_progress_but_drop_records(store: EmbeddedStore) -> None:
    _put_states(store, behind_in_tp(3))
    _beat(store, step=12, dropped=40)
    assert _named_ranks(store) is None


@pytest.mark.parametrize(
    "values", [{"step": 8}, {"recorded": 901}, {"ended": 1}, {"step": 2, "recorded": 2_000}],
    ids=["another step", "more records", "an end in good order", "an earlier step of a new life"],
)  # fmt: skip
def test_stall_between_steps_is_cleared_when_the_ranks_make_progress(
    store: EmbeddedStore, values: dict[str, Any]
) -> None:
    _put_states(store, _between_steps(behind_in_tp(3)))
    _beat(store, **values)
    assert _named_ranks(store) is None


def test_no_rank_is_named_when_a_job_that_makes_progress_is_interrupted(store: EmbeddedStore) -> None:
    """On Ctrl-C, evidence is taken after the first rank has ended and while the others still wait for it."""
    states = {rank: _a_moment_ago(one) for rank, one in behind_in_tp(3).items()}
    states[3] |= {"process": "ended", "open": []}
    _put_states(store, states)
    _beat(store, recorded=905, ended=1)
    assert _named_ranks(store) is None


def test_evidence_of_an_older_stall_does_not_hide_a_new_stall(store: EmbeddedStore) -> None:
    states = behind_in_tp(3)
    old = {rank: {**states[rank], "step": 2, "recorded": 100, "at_ns": NOW_NS - 3_600 * 10**9} for rank in (4, 5)}
    _put_states(store, {**states, **old})
    _beat(store)
    assert _named_ranks(store) == (3,)


def test_job_that_never_stalled_has_no_stored_verdict(store: EmbeddedStore) -> None:
    _beat(store)
    assert _named_ranks(store) is None


def test_dead_rank_stays_named_when_the_other_ranks_end_because_of_it(store: EmbeddedStore) -> None:
    states = behind_in_tp(3)
    states[3] |= {"process": "dead", "died_ns": NOW_NS, "ended_by": "SIGKILL"}
    _put_states(store, states)
    _beat(store, recorded=905, ended=1)
    insert(store, "heartbeats", made("heartbeats", [_dead_beat()]), run_id=RUN)
    assert _named_ranks(store) == (3,)


def _a_moment_ago(state: dict[str, Any]) -> dict[str, Any]:
    """The same state, of a job that made progress until a second ago."""
    later_ns = NOW_NS - SECOND_NS - SINCE_NS
    spans = [{**span, "since_ns": span["since_ns"] + later_ns} for span in state["open"]]
    operations = [{**one, "issued_ns": one["issued_ns"] + later_ns} for one in state["operations"]]
    return {**state, "open": spans, "operations": operations, "beat_ns": state["beat_ns"] + later_ns}


def _dead_beat() -> dict[str, Any]:
    return {"rank": 3, "at_ns": NOW_NS + 2_000_000_000, "step": 7, "recorded": 900}


def test_flight_recorders_name_the_rank_when_all_state_pages_show_compute(store: EmbeddedStore) -> None:
    """DDP waits for a future inside backward, so the page of a rank that waits shows backward-compute."""
    grid = {"topology": {"dp": 4, "pp": 1, "tp": 1}}
    states, behind = {}, 2
    for rank in range(4):
        reduced = operation("dp", "grads-all-reduce", 26 if rank == behind else 27, 26)
        states[rank] = state(rank, "forward-compute" if rank == behind else "backward-compute", [reduced], **grid)
    _put_states(store, states)
    _beat(store)
    recorders = (
        {"rank": rank, "at_ns": NOW_NS, "kind": "flight-recorder", "body": json.dumps(waiting(rank, behind=behind))}
        for rank in range(4)
    )
    assert _named_ranks(store) == ()
    insert(store, "evidence", made("evidence", recorders), run_id=RUN)
    assert _named_ranks(store) == (behind,)


def _driver_says(store: EmbeddedStore, text: str) -> None:
    event = {"host": "node-0", "at_ns": NOW_NS, "device": "driver", "name": "driver", "text": text}
    insert(store, "host_events", made("host_events", [event]), run_id=RUN)


def _fail(store: EmbeddedStore, rank: int, at_ns: int, text: str) -> None:
    mark = {"rank": rank, "at_ns": at_ns, "name": "rank-failed", "text": text}
    insert(store, "marks", made("marks", [mark]), run_id=RUN)


def _headline(store: EmbeddedStore) -> str:
    verdict = stored_verdict(StoreReader(store), RUN, 0)
    assert verdict is not None
    assert verdict.initiating == ()
    finding = hang_finding(verdict)
    assert finding is not None
    assert (finding.kind, finding.severity) == (Kind.DEAD_RANK, Severity.CRITICAL)
    assert "dead-rank" in str(hang_object(verdict))
    return verdict.headline


def test_no_verdict_when_an_operator_ended_the_ranks_before_the_first_step(store: EmbeddedStore) -> None:
    _driver_says(store, "drain: an operator asked to drain it")
    _beat(store, step=0, recorded=0, alive=0)
    assert stored_verdict(StoreReader(store), RUN, 0) is None


def test_deaths_before_the_first_step_are_reported_with_the_best_known_cause(
    store: EmbeddedStore,
) -> None:
    _beat(store, step=0, recorded=0, alive=0)
    assert _headline(store) == (
        "ranks 0-7 died before the first step of the attempt was complete: no agent saw how. "
        "See the log of the launcher"
    )
    _driver_says(store, "rank-failed: rank 1 was killed by SIGKILL on node-0")
    assert _headline(store).endswith("complete: rank 1 was killed by SIGKILL on node-0")
    _fail(store, 3, NOW_NS + 5, "RuntimeError: connection closed by peer")
    _fail(store, 5, NOW_NS, "UnreadableError: no checkpoint can be read")
    assert _headline(store).endswith("rank 5 failed first: UnreadableError: no checkpoint can be read")


def test_a_rank_that_ended_with_an_error_before_the_first_step_is_named(store: EmbeddedStore) -> None:
    rows = [{"rank": rank, "at_ns": NOW_NS, "alive": int(rank != 2), "ended": 2 * (rank == 2)} for rank in range(3)]
    insert(store, "heartbeats", made("heartbeats", rows), run_id=RUN)
    assert _named_ranks(store) == (2,)


def test_no_verdict_when_ranks_end_after_a_completed_step(store: EmbeddedStore) -> None:
    _beat(store, alive=0)
    _complete(store, 0, STEP_BEGAN_NS, SECOND_NS)
    assert stored_verdict(StoreReader(store), RUN, 0) is None


def test_no_finding_when_sigterm_ended_the_ranks_before_the_first_step(store: EmbeddedStore) -> None:
    gone = {"process": "dead", "ended_by": "SIGTERM", "died_ns": NOW_NS, "step": -1, "open": [], "operations": []}
    _put_states(store, {rank: {**one, **gone} for rank, one in behind_in_tp(3).items()})
    _beat(store, step=0, recorded=0, alive=0)
    verdict = stored_verdict(StoreReader(store), RUN, 0)
    assert verdict is None or verdict.kind is None
