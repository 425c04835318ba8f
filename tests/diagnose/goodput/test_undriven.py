"""Ledgers of runs that nobody drives: restarted by hand or by torchrun, imported, live."""

import numpy as np

from diagnose.goodput.ledger import make_ledger
from diagnose.goodput.records import Ending, RunHistory, StepTimes
from tests.diagnose.goodput.made_history import S, at, attempt, history, seconds, steps


def test_one_attempt_is_start_up_steps_and_the_time_between_them() -> None:
    ledger = make_ledger(history(attempt(0, 0, steps(0, 10, begin_s=5, between_s=0.1), heard_s=17)))
    assert seconds(ledger) == {"useful": 10, "outside-steps": 2, "restarting": 5}
    assert ledger.incidents == ()
    assert ledger.unknown == ()


def test_snapshots_in_steps_are_checkpointing() -> None:
    made = steps(0, 10, begin_s=5)
    snapshots = StepTimes(
        number=np.array([4, 9]), start_ns=np.array([at(9.7), at(14.7)]), duration_ns=np.full(2, 300_000_000)
    )
    ledger = make_ledger(history(attempt(0, 0, made, heard_s=15, snapshots=snapshots)))
    assert seconds(ledger) == {"useful": 9.4, "checkpointing": 0.6, "restarting": 5}


def test_a_crash_is_detected_when_its_last_rank_ended_and_the_gap_is_idle() -> None:
    ledger = make_ledger(
        history(
            attempt(0, 0, steps(0, 10, begin_s=5), heard_s=18, ending=Ending.FAILED, interrupted_s=15.5),
            attempt(1, 30, steps(6, 10, begin_s=35), heard_s=45),
        )
    )
    assert seconds(ledger) == {
        "useful": 10 + 6, "repeated": 0.5 + 4, "detecting": 2.5, "restarting": 5 + 5, "idle": 12,
    }  # fmt: skip
    (incident,) = ledger.incidents
    assert incident.cause == "rank-failed"
    assert "4 of 4 ranks" in incident.reason
    assert incident.cost_ns == (4.5 + 2.5 + 5) * S
    assert any("no driver" in sentence for sentence in ledger.unknown)


def test_a_hang_that_ended_is_a_stall_and_evidence_of_a_crash_is_not() -> None:
    for interrupted_s, cause in ((95, "stall"), (15.5, "rank-failed")):
        first = attempt(
            0,
            0,
            steps(0, 10, begin_s=5),
            heard_s=interrupted_s + 2,
            ending=Ending.FAILED,
            interrupted_s=interrupted_s,
            has_stalled=True,
        )
        ledger = make_ledger(history(first))
        assert [incident.cause for incident in ledger.incidents] == [cause]


def test_a_live_run_goes_on_until_its_newest_data() -> None:
    ledger = make_ledger(history(attempt(0, 0, steps(0, 10, begin_s=5), heard_s=15.6, ending=Ending.RUNNING)))
    assert seconds(ledger) == {"useful": 10, "outside-steps": 0.6, "restarting": 5}
    assert ledger.incidents == ()


def test_a_live_run_that_stalls_loses_the_time_since_its_newest_step() -> None:
    first = attempt(0, 0, steps(0, 10, begin_s=5), heard_s=75, ending=Ending.RUNNING, has_stalled=True)
    ledger = make_ledger(history(first))
    assert seconds(ledger)["detecting"] == 60
    assert (ledger.incidents[0].detected_ns, ledger.incidents[0].cost_ns) == (None, 60 * S)


def test_a_run_before_its_first_step_has_no_goodput() -> None:
    ledger = make_ledger(history(attempt(0, 0, heard_s=9, ending=Ending.RUNNING)))
    assert seconds(ledger) == {"restarting": 9}
    assert ledger.goodput is None


def test_an_imported_run_says_that_the_ends_of_its_ranks_are_unknown() -> None:
    ledger = make_ledger(history(attempt(0, 0, steps(0, 10, begin_s=0), heard_s=10, ending=Ending.UNKNOWN)))
    assert ledger.goodput == 1
    assert any("no agent" in sentence for sentence in ledger.unknown)


def test_an_attempt_that_nothing_explains_is_an_incident_of_unknown_cause() -> None:
    ledger = make_ledger(
        history(
            attempt(0, 0, steps(0, 10, begin_s=0), heard_s=10, ending=Ending.UNKNOWN),
            attempt(1, 20, steps(5, 10, begin_s=21), heard_s=31, ending=Ending.UNKNOWN),
        )
    )
    assert seconds(ledger) == {"useful": 15, "repeated": 5, "restarting": 1, "idle": 10}
    assert [(incident.cause, incident.cost_ns) for incident in ledger.incidents] == [("unknown", 6 * S)]


def test_a_restart_after_a_normal_end_is_no_incident() -> None:
    ledger = make_ledger(
        history(
            attempt(0, 0, steps(0, 10, begin_s=0), heard_s=11),
            attempt(1, 20, steps(10, 10, begin_s=21), heard_s=31),
        )
    )
    assert ledger.incidents == ()
    assert seconds(ledger)["idle"] == 9


def test_clocks_of_hosts_that_lie_apart_do_not_add_wall_time() -> None:
    first = attempt(0, 0, steps(0, 10, begin_s=5), heard_s=20)
    ledger = make_ledger(RunHistory(run_id="run", attempts=(first,), host_wall_ns=15 * S))
    assert ledger.wall_ns == 15 * S


def test_steps_that_seem_to_overlap_lose_no_time_but_once() -> None:
    """Each step lasts for 1 s as a mean over the ranks; the first rank begins it up to 0.2 s early or late."""
    made = steps(0, 100, begin_s=0)
    late = np.array([0, *np.random.default_rng(0).integers(-S // 5, S // 5, 98), 0])
    shifted = StepTimes(number=made.number, start_ns=made.start_ns + late, duration_ns=made.duration_ns)
    ledger = make_ledger(history(attempt(0, 0, shifted, heard_s=100)))
    assert seconds(ledger)["useful"] >= 99.8
