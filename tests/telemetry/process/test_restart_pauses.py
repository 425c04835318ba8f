"""Pauses before a process that died is started again."""

from telemetry.process.child_process import LONG_LIFE_S, RestartPauses


def test_pauses_double_up_to_a_minute() -> None:
    pauses = RestartPauses()
    assert [pauses.after_death(0.0) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_after_a_long_life_the_pauses_begin_again_and_after_a_short_one_they_go_on() -> None:
    pauses = RestartPauses(0.5)
    found = []
    for lived_s in (1.0, LONG_LIFE_S - 1, LONG_LIFE_S, 1.0):
        pauses.started(100.0)
        found.append(pauses.after_death(100.0 + lived_s))
    assert found == [0.5, 1, 0.5, 1]


def test_a_start_that_fails_is_no_life_however_long_ago_the_last_one_was() -> None:
    pauses = RestartPauses()
    pauses.started(0.0)
    assert pauses.after_death(1.0) == 1
    assert pauses.after_death(10 * LONG_LIFE_S) == 2
