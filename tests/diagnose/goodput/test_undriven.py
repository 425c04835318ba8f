"""Ledgers of runs without a driver: restarted by hand or by torchrun, imported, or live."""

import numpy as np

from diagnose.goodput.ledger import make_ledger
from diagnose.goodput.records import Ending, RunHistory, StepTimes
from tests.diagnose.goodput.made_history import S, at, attempt, history, seconds, steps


def test_run_with_one_attempt_is_split_into_start_up_steps_and_time_between_steps() -> None:
    ledger = make_ledger(history(attempt(0, 0, steps(0, 10, begin_s=5, between_s=0.1), heard_s=17)))
    assert seconds(ledger) == {"useful": 10, "outside-steps": 2, "restarting": 5}
    assert ledger.incidents == ()
    assert ledger.unknown == ()


def test_healthy_attempt_has_no_time_in_restarting_although_its_first_step_is_slightly_longer() -> None:
    ledger = make_ledger(history(attempt(0, 0, steps(0, 10, begin_s=0, warm_up_s=0.2), heard_s=10.2)))
    assert seconds(ledger) == {"useful": 10.2}
    assert sum(ledger.classes_ns.values()) == ledger.wall_ns


def test_snapshots_within_steps_count_as_checkpointing() -> None:
    made = steps(0, 10, begin_s=5)
    snapshots = StepTimes(
        number=np.array([4, 9]), start_ns=np.array([at(9.7), at(14.7)]), duration_ns=np.full(2, 300_000_000)
    )
    ledger = make_ledger(history(attempt(0, 0, made, heard_s=15, snapshots=snapshots)))
    assert seconds(ledger) == {"useful": 9.4, "checkpointing": 0.6, "restarting": 5}


def test_crash_is_detected_at_the_end_of_its_last_rank_and_the_gap_counts_as_idle() -> None:
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


def test_failed_attempt_with_a_stall_has_cause_stall_only_if_its_last_step_lasted_long() -> None:
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


def test_ledger_of_a_live_run_ends_at_its_newest_data() -> None:
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


def test_ledger_of_an_imported_run_says_that_the_ends_of_its_ranks_are_unknown() -> None:
    ledger = make_ledger(history(attempt(0, 0, steps(0, 10, begin_s=0), heard_s=10, ending=Ending.UNKNOWN)))
    assert ledger.goodput == 1
    assert any("no agent" in sentence for sentence in ledger.unknown)


def test_attempt_with_an_unexplained_end_is_an_incident_of_unknown_cause() -> None:
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


def test_clock_offsets_between_hosts_do_not_add_wall_time() -> None:
    first = attempt(0, 0, steps(0, 10, begin_s=5), heard_s=20)
    ledger = make_ledger(RunHistory(run_id="run", attempts=(first,), host_wall_ns=15 * S))
    assert ledger.wall_ns == 15 * S


def test_useful_time_is_kept_when_step_starts_jitter_and_steps_seem_to_overlap() -> None:
    """The mean duration of each step over the ranks is 1 s. The first rank begins it up to 0.2 s early or late."""
    made = steps(0, 100, begin_s=0)
    late = np.array([0, *np.random.default_rng(0).integers(-S // 5, S // 5, 98), 0])
    shifted = StepTimes(number=made.number, start_ns=made.start_ns + late, duration_ns=made.duration_ns)
    ledger = make_ledger(history(attempt(0, 0, shifted, heard_s=100)))
    assert seconds(ledger)["useful"] >= 99.8
