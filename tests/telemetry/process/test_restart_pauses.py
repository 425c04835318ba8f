"""Pauses before a dead process is restarted."""

from telemetry.process.child_process import LONG_LIFE_S, RestartPauses


def test_pauses_double_up_to_a_minute() -> None:
    pauses = RestartPauses()
    assert [pauses.after_death(0.0) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_restart_pause_is_reset_only_after_a_long_life() -> None:
    pauses = RestartPauses(0.5)
    found = []
    for lived_s in (1.0, LONG_LIFE_S - 1, LONG_LIFE_S, 1.0):
        pauses.started(100.0)
        found.append(pauses.after_death(100.0 + lived_s))
    assert found == [0.5, 1, 0.5, 1]


def test_failed_start_does_not_reset_the_restart_pause() -> None:
    pauses = RestartPauses()
    pauses.started(0.0)
    assert pauses.after_death(1.0) == 1
    assert pauses.after_death(10 * LONG_LIFE_S) == 2
