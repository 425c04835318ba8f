"""Microseconds in JSON traces: every reader gets the exact nanosecond."""

import json
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagnose.trace.json_trace import microseconds

SIX_DAYS_NS = 6 * 86_400 * 10**9


def by_digits(text: str) -> float:
    """A number as Perfetto's own parser reads it: digit by digit, with an error in the last place."""
    whole, _, part = text.partition(".")
    fraction = 0.0
    for digit in part:
        fraction = fraction * 10.0 + int(digit)
    return float(whole) + fraction / 10.0 ** len(part)


@given(st.lists(st.integers(0, SIX_DAYS_NS), min_size=1))
def test_rounding_and_truncating_readers_get_the_same_nanosecond(stamps: list[int]) -> None:
    for at_ns, us in zip(stamps, microseconds(np.array(stamps, dtype=np.int64)), strict=True):
        text = json.dumps(us)
        read = json.loads(text)
        assert (round(read * 1000), int(read * 1000.0)) == (at_ns, at_ns)
        if "e" not in text:
            assert int(by_digits(text) * 1000.0) == at_ns


def test_microseconds_keep_every_nanosecond() -> None:
    stamps = np.arange(0, 3_000_000, dtype=np.int64) + 86_399_999_000_000
    read = np.array(microseconds(stamps))
    np.testing.assert_array_equal((read * 1000.0).astype(np.int64), stamps)
    np.testing.assert_array_equal(np.rint(read * 1000.0).astype(np.int64), stamps)


def test_microseconds_without_rounding_error_are_not_adjusted() -> None:
    assert microseconds(np.array([0, 1500, 2_000_250])) == [0.0, 1.5, 2000.25]
    assert math.floor(microseconds(np.array([1001]))[0] * 1000.0) == 1001
