"""Several collectors over one database: whatever is killed, cut off or stands still in between, exactly once."""

import pytest

from tests.telemetry.claims_model import play

SCHEDULES = 60
"""More than enough: each part of the protocol that is left out is caught within 13 of them."""


def play_all(**switches: bool) -> None:
    for seed in range(SCHEDULES):
        play(seed, **switches)


def test_no_order_of_steps_loses_or_doubles_a_row() -> None:
    play_all()


@pytest.mark.parametrize("left_out", ["confirms", "settles", "fresh_marks"])
def test_every_part_of_the_protocol_is_needed(left_out: str) -> None:
    with pytest.raises(AssertionError, match="doubled"):
        play_all(**{left_out: False})
