"""Several collectors with one database store each row exactly once, whichever one is killed, cut off or paused."""

import pytest

from tests.telemetry.claims_model import play

SCHEDULES = 15
"""Enough: each missing part of the protocol is detected within 13 schedules."""


def play_all(count: int = SCHEDULES, **switches: bool) -> None:
    for seed in range(count):
        play(seed, **switches)


@pytest.mark.parametrize("count", [SCHEDULES, pytest.param(20 * SCHEDULES, marks=pytest.mark.long)])
def test_no_schedule_of_several_collectors_loses_or_doubles_a_row(count: int) -> None:
    play_all(count)


@pytest.mark.parametrize("left_out", ["confirms", "settles", "fresh_marks"])
def test_rows_are_doubled_when_a_part_of_the_protocol_is_left_out(left_out: str) -> None:
    with pytest.raises(AssertionError, match="doubled"):
        play_all(**{left_out: False})
