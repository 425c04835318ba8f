"""Stamps of several hosts on one clock: shifted, in order, and nested as they were."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diagnose.model.host_clocks import ReferenceClock
from telemetry.clocks.align_evidence import REFERENCE, ClockTable, HostClock

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
EPOCH = 1_790_000_000 * SECOND
REACH = {"a": (EPOCH, EPOCH + 2 * MINUTE), "b": (EPOCH, EPOCH + 2 * MINUTE)}
STAMPS = st.lists(st.integers(0, 2 * MINUTE), min_size=2)


def window(number: int, *, offset_ns: int, drift_ppm: float = 0.0, bound_ns: int = 40_000) -> HostClock:
    """Host b in one minute of the run."""
    first_ns = EPOCH + number * MINUTE
    return HostClock(
        host="b", reference="a", first_ns=first_ns, last_ns=first_ns + MINUTE, offset_ns=offset_ns,
        drift_ppm=drift_ppm, bound_ns=bound_ns, method="ends",
    )  # fmt: skip


def clock(*windows: HostClock) -> ReferenceClock:
    return ReferenceClock(
        ClockTable([HostClock(host="a", reference="a", bound_ns=0, method=REFERENCE), *windows]), REACH
    )


def test_stamps_are_shifted_by_the_offset_and_drift_of_their_window() -> None:
    """Two minutes with the same drift: 20 ppm of half a minute are 600 µs."""
    drifting = clock(*(window(n, offset_ns=3 * SECOND + n * 1_200_000, drift_ppm=20.0) for n in (0, 1)))
    middle = np.array([EPOCH + MINUTE // 2, EPOCH + MINUTE // 2 + MINUTE])
    moved = middle - drifting.aligned(middle, "b")
    np.testing.assert_allclose(moved, [3 * SECOND, 3 * SECOND + 1_200_000], atol=2)
    assert drifting.aligned(middle, "a").tolist() == middle.tolist()
    assert (drifting.alignment.num_hosts, drifting.alignment.bound_ns, drifting.alignment.unaligned) == (2, 40_000, ())


@given(STAMPS)
def test_stamps_keep_their_order_when_two_windows_disagree(stamps: list[int]) -> None:
    jumping = clock(window(0, offset_ns=SECOND), window(1, offset_ns=SECOND + 80_000))
    at_ns = EPOCH + np.sort(np.array(stamps, dtype=np.int64))
    assert (np.diff(jumping.aligned(at_ns, "b")) >= 0).all()


def test_stamps_of_a_host_without_a_clock_estimate_stay_unchanged() -> None:
    blind = clock()
    at_ns = np.array([EPOCH, EPOCH + 7])
    assert blind.aligned(at_ns, "b").tolist() == at_ns.tolist()
    assert blind.alignment.unaligned == ("a", "b")


def test_clock_with_an_error_bound_of_two_seconds_is_unaligned() -> None:
    assert clock(window(0, offset_ns=9, bound_ns=2 * SECOND)).alignment.unaligned == ("a", "b")
