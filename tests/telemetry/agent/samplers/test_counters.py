"""A counter that falls: round its end, or anew."""

from hypothesis import given
from hypothesis import strategies as st

from telemetry.agent.samplers.interface import WrappingCounter

RANGE = 2**32


@given(start=st.integers(0, RANGE - 1), steps=st.lists(st.integers(0, RANGE // 4 - 1), max_size=50))
def test_any_growth_below_a_quarter_of_its_range_is_kept(start: int, steps: list[int]) -> None:
    counter = WrappingCounter()
    first = counter.unwrapped(start)
    total = start
    for step in steps:
        total += step
        assert counter.unwrapped(total % RANGE) - first == total - start


def test_a_device_that_began_anew_falls_to_where_it_stands() -> None:
    counter = WrappingCounter()
    assert [counter.unwrapped(value) for value in (RANGE // 2, 40, 50)] == [RANGE // 2, 40, 50]


def test_what_was_added_for_going_round_is_dropped_when_it_begins_anew() -> None:
    counter = WrappingCounter()
    values = [counter.unwrapped(value) for value in (RANGE - 1, 10, 5)]
    assert values == [RANGE - 1, RANGE + 10, 5]


def test_a_counter_of_64_bits_never_wraps() -> None:
    counter = WrappingCounter()
    assert [counter.unwrapped(value) for value in (2**40, 3)] == [2**40, 3]
