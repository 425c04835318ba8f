"""A counter falls when it wraps at the end of its range, or when its device is reset."""

from hypothesis import given
from hypothesis import strategies as st

from telemetry.agent.samplers.interface import WrappingCounter

RANGE = 2**32


@given(start=st.integers(0, RANGE - 1), steps=st.lists(st.integers(0, RANGE // 4 - 1), max_size=50))
def test_growth_below_a_quarter_of_the_range_is_counted_across_wraps(start: int, steps: list[int]) -> None:
    counter = WrappingCounter()
    first = counter.unwrapped(start)
    total = start
    for step in steps:
        total += step
        assert counter.unwrapped(total % RANGE) - first == total - start


def test_counter_falls_to_the_new_value_after_a_device_reset() -> None:
    counter = WrappingCounter()
    assert [counter.unwrapped(value) for value in (RANGE // 2, 40, 50)] == [RANGE // 2, 40, 50]


def test_offset_of_earlier_wraps_is_dropped_after_a_device_reset() -> None:
    counter = WrappingCounter()
    values = [counter.unwrapped(value) for value in (RANGE - 1, 10, 5)]
    assert values == [RANGE - 1, RANGE + 10, 5]


def test_a_counter_of_64_bits_never_wraps() -> None:
    counter = WrappingCounter()
    assert [counter.unwrapped(value) for value in (2**40, 3)] == [2**40, 3]
