"""The stall that is stored: present while the ranks stand, gone when they have gone on."""

import json
from typing import Any

import pytest

from diagnose.hang.judge import judge
from diagnose.hang.stored import load_stored
from telemetry.stores.embedded import EmbeddedStore
from telemetry.stores.reader import StoreReader
from tests.diagnose.hang.made_states import NOW_NS, behind_in_tp
from tests.telemetry.made_rows import insert, made

RUN = "stalled"


@pytest.fixture
def store(embedded: EmbeddedStore) -> EmbeddedStore:
    return embedded


def _leave(store: EmbeddedStore, states: dict[int, dict[str, Any]]) -> None:
    rows = (
        {"rank": rank, "at_ns": one["at_ns"], "kind": "state", "body": json.dumps(one)} for rank, one in states.items()
    )
    insert(store, "evidence", made("evidence", rows), run_id=RUN)


def _beat(store: EmbeddedStore, **values: Any) -> None:
    """A heartbeat of each rank, a second after the evidence was taken."""
    usual = {"at_ns": NOW_NS + 1_000_000_000, "step": 7, "recorded": 900, "alive": 1}
    rows = ({"rank": rank, **usual, **values} for rank in range(8))
    insert(store, "heartbeats", made("heartbeats", rows), run_id=RUN)


def _accused(store: EmbeddedStore) -> tuple[int, ...] | None:
    evidence = load_stored(StoreReader(store), RUN, 0)
    return None if evidence is None else judge(evidence).initiating


def test_a_stall_is_there_while_the_ranks_stand(store: EmbeddedStore) -> None:
    _leave(store, behind_in_tp(3))
    _beat(store)
    assert _accused(store) == (3,)


@pytest.mark.parametrize(
    "values", [{"step": 8}, {"recorded": 901}, {"ended": 1}, {"step": 2, "recorded": 2_000}],
    ids=["another step", "more records", "an end in good order", "an earlier step of a new life"],
)  # fmt: skip
def test_it_is_gone_when_the_ranks_have_gone_on(store: EmbeddedStore, values: dict[str, Any]) -> None:
    _leave(store, behind_in_tp(3))
    _beat(store, **values)
    assert _accused(store) is None


def test_what_was_left_of_an_older_stall_does_not_hide_a_new_one(store: EmbeddedStore) -> None:
    states = behind_in_tp(3)
    old = {rank: {**states[rank], "step": 2, "recorded": 100, "at_ns": NOW_NS - 3_600 * 10**9} for rank in (4, 5)}
    _leave(store, {**states, **old})
    _beat(store)
    assert _accused(store) == (3,)


def test_a_job_that_never_stood_still_has_none(store: EmbeddedStore) -> None:
    _beat(store)
    assert _accused(store) is None


def test_a_death_is_not_taken_back_by_the_others_that_unwind_over_it(store: EmbeddedStore) -> None:
    states = behind_in_tp(3)
    states[3] |= {"process": "dead", "died_ns": NOW_NS, "ended_by": "SIGKILL"}
    _leave(store, states)
    _beat(store, recorded=905, ended=1)
    insert(store, "heartbeats", made("heartbeats", [_dead_beat()]), run_id=RUN)
    assert _accused(store) == (3,)


def _dead_beat() -> dict[str, Any]:
    return {"rank": 3, "at_ns": NOW_NS + 2_000_000_000, "step": 7, "recorded": 900}
