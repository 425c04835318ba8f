"""Ledgers of runs with a driver."""

from diagnose.goodput.ledger import make_ledger
from diagnose.goodput.records import Ending
from tests.diagnose.goodput.made_history import S, at, attempt, decisions, history, seconds, steps

BEGIN = ((0, 0, "check"), (3, 0, "admit", "a"), (3, 0, "start"))


def test_run_without_faults_is_split_into_checks_start_up_and_steps() -> None:
    first = attempt(0, 4, steps(0, 10, begin_s=6), heard_s=16.5, saved_s=16.2)
    ledger = make_ledger(history(first, decided=decisions(*BEGIN, (17, 0, "done"))))
    assert seconds(ledger) == {
        "useful": 10, "checkpointing": 0.2, "outside-steps": 0.8, "checking": 3, "restarting": 3,
    }  # fmt: skip
    assert ledger.wall_ns == 17 * S
    assert ledger.goodput == 10 / 17
    assert ledger.incidents == ()
    assert ledger.unknown == ()


def test_a_killed_rank_costs_detection_checks_restart_and_repeated_steps() -> None:
    """Ten steps, a rank is killed in the middle of step 10, and the checkpoint is from before step 6."""
    ledger = make_ledger(
        history(
            attempt(0, 4, steps(0, 10, begin_s=6), heard_s=18, ending=Ending.FAILED, interrupted_s=16.4),
            attempt(1, 24, steps(6, 10, begin_s=26), heard_s=36),
            decided=decisions(
                *BEGIN,
                (18, 0, "rank-failed", "b"),
                (19, 0, "check"),
                (22, 0, "admit", "b"),
                (23, 1, "start"),
                (36, 1, "done"),
            ),
        )
    )
    assert seconds(ledger) == {
        "useful": 10 + 6, "repeated": 0.4 + 4, "detecting": 1.6, "checking": 3 + 3, "restarting": 3 + 1 + 1 + 3,
    }  # fmt: skip
    (incident,) = ledger.incidents
    assert (incident.attempt, incident.cause, incident.nodes) == (0, "rank-failed", ("b",))
    assert (incident.began_ns, incident.detected_ns, incident.resumed_ns) == (at(16.4), at(18), at(26))
    assert incident.cost_ns == round((1.6 + 3 + 5 + 4.4) * S)


def test_the_warm_up_of_an_attempt_is_a_part_of_the_restart() -> None:
    """Step 10 of attempt 1 is new, step 8 of attempt 2 is repeated. Both are longer by their warm-up."""
    ledger = make_ledger(
        history(
            attempt(0, 4, steps(0, 10, begin_s=6, warm_up_s=2), heard_s=19, ending=Ending.FAILED, interrupted_s=18.5),
            attempt(1, 21, steps(10, 5, begin_s=23, warm_up_s=4), heard_s=33, ending=Ending.FAILED, interrupted_s=32.5),
            attempt(2, 35, steps(8, 10, begin_s=37, warm_up_s=3), heard_s=50),
            decided=decisions(
                *BEGIN,
                (19, 0, "rank-failed"),
                (20, 1, "start"),
                (33, 1, "rank-failed"),
                (34, 2, "start"),
                (50, 2, "done"),
            ),
        )
    )
    assert seconds(ledger) == {
        "useful": 10 + 5 + 3, "repeated": 7 + 1, "detecting": 1, "checking": 3, "restarting": 3 + 2 + 4 + 4 + 4 + 3,
    }  # fmt: skip
    first, second = ledger.incidents
    assert (first.resumed_ns, first.cost_ns) == (at(23), (23 - 18 + 4) * S)
    assert (second.resumed_ns, second.cost_ns) == (at(37), (37 - 32 + 3 + 7) * S)


def test_fault_is_assumed_after_the_usual_step_time_when_no_mark_exists() -> None:
    ledger = make_ledger(
        history(
            attempt(0, 4, steps(0, 10, begin_s=6), heard_s=20, ending=Ending.FAILED),
            attempt(1, 22, steps(10, 2, begin_s=24), heard_s=26),
            decided=decisions(*BEGIN, (20, 0, "node-lost", "b"), (21, 1, "start"), (26, 1, "done")),
        )
    )
    assert (seconds(ledger)["repeated"], seconds(ledger)["detecting"]) == (1, 3)
    assert any("one usual step time" in sentence for sentence in ledger.unknown)


def test_a_hang_is_lost_time_from_its_start() -> None:
    """No part of step 10 is repeated work. All time since its begin belongs to the hang."""
    ledger = make_ledger(
        history(
            attempt(0, 4, steps(0, 10, begin_s=6), heard_s=60, ending=Ending.FAILED, interrupted_s=59),
            attempt(1, 62, steps(10, 10, begin_s=64), heard_s=74),
            decided=decisions(*BEGIN, (56, 0, "hung-collective"), (61, 1, "start"), (74, 1, "done")),
        )
    )
    assert seconds(ledger) == {"useful": 20, "detecting": 40, "checking": 3, "restarting": 3 + 8}
    assert ledger.incidents[0].began_ns == at(16)
    assert ledger.incidents[0].cost_ns == 48 * S


def test_pause_counts_as_checkpointing_and_idle_and_is_no_incident() -> None:
    ledger = make_ledger(
        history(
            attempt(0, 4, steps(0, 10, begin_s=6), heard_s=18, saved_s=17),
            attempt(1, 50, steps(10, 5, begin_s=53), heard_s=58),
            decided=decisions(
                *BEGIN, (14.5, 0, "pause"), (47, 0, "resume"), (47, 0, "check"), (49, 0, "admit", "a"),
                (49, 1, "start"), (58, 1, "done"),
            ),
        )
    )  # fmt: skip
    assert seconds(ledger) == {"useful": 15, "checkpointing": 1, "idle": 30, "checking": 3 + 2, "restarting": 3 + 4}
    assert ledger.incidents == ()


def test_a_paused_run_is_idle_until_its_newest_data() -> None:
    first = attempt(0, 4, steps(0, 10, begin_s=6), heard_s=30, saved_s=17)
    ledger = make_ledger(history(first, decided=decisions(*BEGIN, (14.5, 0, "pause"))))
    assert seconds(ledger) == {"useful": 10, "checkpointing": 1, "idle": 13, "checking": 3, "restarting": 3}


def test_drained_node_is_a_planned_stop_and_no_incident() -> None:
    ledger = make_ledger(
        history(
            attempt(0, 4, steps(0, 10, begin_s=6), heard_s=18),
            attempt(1, 20, steps(10, 5, begin_s=22), heard_s=27),
            decided=decisions(*BEGIN, (14, 0, "drain", "b"), (19, 1, "start"), (27, 1, "done")),
        )
    )
    assert seconds(ledger) == {"useful": 15, "checkpointing": 2, "checking": 3, "restarting": 3 + 4}
    assert ledger.incidents == ()


def test_a_drained_spare_does_not_stop_the_attempt() -> None:
    ledger = make_ledger(
        history(
            attempt(0, 4, steps(0, 10, begin_s=6), heard_s=17, ending=Ending.FAILED, interrupted_s=16.5),
            attempt(1, 20, steps(10, 5, begin_s=22), heard_s=27),
            decided=decisions(
                *BEGIN, (8, 0, "drain", "c"), (17, 0, "rank-failed", "b"), (19, 1, "start"), (27, 1, "done")
            ),
        )
    )
    assert [incident.cause for incident in ledger.incidents] == ["rank-failed"]
    assert seconds(ledger)["detecting"] == 0.5


def test_slow_rank_that_the_driver_removes_is_an_incident_without_detecting_time() -> None:
    """The job continues to train until it has saved a checkpoint."""
    ledger = make_ledger(
        history(
            attempt(0, 4, steps(0, 10, begin_s=6), heard_s=17),
            attempt(1, 20, steps(10, 5, begin_s=22), heard_s=27),
            decided=decisions(
                *BEGIN, (12, 0, "compute-straggler"), (17, 0, "check"), (19, 1, "start"), (27, 1, "done")
            ),
        )
    )
    assert seconds(ledger) == {"useful": 15, "checkpointing": 1, "checking": 3 + 2, "restarting": 3 + 3}
    (incident,) = ledger.incidents
    assert (incident.cause, incident.began_ns, incident.cost_ns) == ("compute-straggler", at(12), 5 * S)


def test_time_with_too_few_nodes_counts_as_waiting_until_the_next_check() -> None:
    ledger = make_ledger(
        history(
            attempt(0, 4, steps(0, 10, begin_s=6), heard_s=18, ending=Ending.FAILED, interrupted_s=16),
            attempt(1, 90, steps(10, 5, begin_s=92), heard_s=97),
            decided=decisions(
                *BEGIN, (18, 0, "node-lost", "b"), (28, 0, "wait"), (85, 0, "return", "b"), (86, 0, "check"),
                (88, 0, "admit", "b"), (88, 1, "start"), (97, 1, "done"),
            ),
        )
    )  # fmt: skip
    assert seconds(ledger)["waiting-for-nodes"] == 58
    assert ledger.incidents[0].cost_ns == (92 - 16) * S


def test_check_of_a_spare_node_during_training_adds_no_checking_time() -> None:
    first = attempt(0, 4, steps(0, 10, begin_s=6), heard_s=16)
    decided = decisions(*BEGIN, (8, 0, "check"), (12, 0, "admit", "c"), (16, 0, "done"))
    assert seconds(make_ledger(history(first, decided=decided)))["checking"] == 3


def test_repeated_work_is_charged_to_the_first_incident_when_the_next_attempt_makes_no_step() -> None:
    """Repeated work is charged to the fault that lost it, also if another attempt failed in between."""
    ledger = make_ledger(
        history(
            attempt(0, 4, steps(0, 10, begin_s=6), heard_s=17, ending=Ending.FAILED, interrupted_s=16),
            attempt(2, 34, steps(5, 10, begin_s=36), heard_s=46),
            decided=decisions(
                *BEGIN, (17, 0, "rank-failed"), (20, 1, "start"), (30, 1, "not-started"), (32, 2, "start"),
                (46, 2, "done"),
            ),
        )
    )  # fmt: skip
    assert ledger.attempts == (0, 1, 2)
    first, second = ledger.incidents
    assert (first.cause, second.cause) == ("rank-failed", "not-started")
    assert first.resumed_ns == second.resumed_ns == at(36)
    assert first.cost_ns == (30 - 16 + 5) * S
    assert second.cost_ns == 6 * S
    assert "attempt 1: no rank reported" in ledger.unknown


def test_a_driver_that_gave_up_ends_the_run_with_an_open_incident() -> None:
    first = attempt(0, 4, steps(0, 10, begin_s=6), heard_s=18, ending=Ending.FAILED, interrupted_s=16)
    ledger = make_ledger(history(first, decided=decisions(*BEGIN, (18, 0, "node-lost"), (40, 0, "give-up"))))
    assert ledger.wall_ns == 40 * S
    assert seconds(ledger) == {"useful": 10, "repeated": 1, "detecting": 1, "checking": 3, "restarting": 3 + 22}
    assert ledger.incidents[0].resumed_ns is None
    assert ledger.incidents[0].cost_ns == 24 * S


def test_stalled_live_run_has_an_incident_without_a_detection_time() -> None:
    first = attempt(0, 4, steps(0, 10, begin_s=6), heard_s=50, ending=Ending.RUNNING, has_stalled=True)
    ledger = make_ledger(history(first, decided=decisions(*BEGIN)))
    assert seconds(ledger)["detecting"] == 34
    assert ledger.incidents[0].detected_ns is None


def test_preempted_attempt_counts_its_save_as_checkpointing_and_is_an_incident() -> None:
    ledger = make_ledger(
        history(
            attempt(0, 4, steps(0, 10, begin_s=6), heard_s=18, saved_s=17),
            attempt(1, 20, steps(10, 5, begin_s=22), heard_s=27),
            decided=decisions(*BEGIN, (18, 0, "preempted"), (19, 1, "start"), (27, 1, "done")),
        )
    )
    assert seconds(ledger) == {"useful": 15, "checkpointing": 1, "checking": 3, "restarting": 3 + 5}
    assert [incident.cause for incident in ledger.incidents] == ["preempted"]
