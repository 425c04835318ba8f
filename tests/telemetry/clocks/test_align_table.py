"""Timestamps of several hosts are converted to one clock."""

from dataclasses import replace

import numpy as np

from telemetry.clocks.align_evidence import MAX_BOUND_NS, ClockTable, HostClock
from tests.telemetry.clocks.made_clocks import ZERO_NS

SECOND = 1_000_000_000


def clock(first_s: float, last_s: float, *, offset_ns: int, drift_ppm: float = 0.0, bound_ns: int = 1000) -> HostClock:
    return HostClock(
        host="b",
        reference="a",
        first_ns=ZERO_NS + round(first_s * SECOND),
        last_ns=ZERO_NS + round(last_s * SECOND),
        offset_ns=offset_ns,
        drift_ppm=drift_ppm,
        bound_ns=bound_ns,
        method="ends",
    )


REFERENCE = HostClock(host="a", reference="a", bound_ns=0, method="reference")


def test_timestamp_is_shifted_by_the_window_that_contains_it() -> None:
    table = ClockTable([REFERENCE, clock(0, 60, offset_ns=5_000_000, drift_ppm=10), clock(60, 120, offset_ns=-7_000)])
    aligned = table.aligned(np.array([ZERO_NS + 40 * SECOND, ZERO_NS + 41 * SECOND]), "b")
    assert aligned is not None
    assert aligned.bound_ns == 1000
    assert aligned.at_ns.tolist() == [
        ZERO_NS + 40 * SECOND - 5_000_000 - 100_000,
        ZERO_NS + 41 * SECOND - 5_000_000 - 110_000,
    ]


def test_the_bound_grows_outside_of_every_window() -> None:
    table = ClockTable([REFERENCE, clock(0, 60, offset_ns=0)])
    bounds = [table.shift("b", ZERO_NS + second * SECOND) for second in (60, 61, 90)]
    assert [one.bound_ns for one in bounds if one is not None] == [1000, 2034, 32_000]


def test_shift_of_a_host_is_unknown_when_the_nearest_window_is_too_far_away() -> None:
    table = ClockTable([REFERENCE, clock(0, 60, offset_ns=0)])
    assert table.shift("b", ZERO_NS + 10**6 * SECOND) is None
    assert table.aligned(np.array([ZERO_NS + 10**6 * SECOND]), "b") is None


def test_refused_and_unknown_hosts_are_not_aligned() -> None:
    refused = HostClock(host="b", reference="a", reason="no collective")
    table = ClockTable([REFERENCE, refused])
    assert not table
    assert table.shift("b", ZERO_NS) is None
    assert table.shift("", ZERO_NS) is None
    assert table.between("a", "b", ZERO_NS) is None


def test_bound_between_two_hosts_is_the_sum_of_their_bounds() -> None:
    other = HostClock(
        host="c", reference="a", first_ns=ZERO_NS, last_ns=ZERO_NS + 60 * SECOND, offset_ns=-2 * SECOND, bound_ns=500,
        method="ends",
    )  # fmt: skip
    table = ClockTable([REFERENCE, clock(0, 60, offset_ns=3 * SECOND), other])
    shift = table.between("b", "c", ZERO_NS + 30 * SECOND)
    assert shift is not None
    assert (shift.offset_ns, shift.bound_ns) == (-5 * SECOND, 1500)
    assert table.between("b", "b", ZERO_NS) is not None


def test_tighter_of_two_overlapping_windows_is_used() -> None:
    table = ClockTable(
        [REFERENCE, clock(0, 60, offset_ns=9, bound_ns=5000), clock(30, 60, offset_ns=7, bound_ns=MAX_BOUND_NS)]
    )
    shift = table.shift("b", ZERO_NS + 40 * SECOND)
    assert shift is not None
    assert shift.offset_ns == 9


def test_windows_with_another_reference_host_are_ignored() -> None:
    """Offsets to different reference hosts cannot be combined."""
    earlier = replace(clock(0, 60, offset_ns=1), reference="b", host="a")
    table = ClockTable([earlier, REFERENCE, clock(60, 120, offset_ns=7)])
    shift = table.shift("a", ZERO_NS + 30 * SECOND)
    assert shift is not None
    assert shift.offset_ns == 0
    assert ClockTable([replace(clock(0, 60, offset_ns=1), reference="c"), REFERENCE]).shift("b", ZERO_NS) is None
