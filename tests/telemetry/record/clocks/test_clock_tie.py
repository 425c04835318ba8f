"""Conversion of device time to host time."""

import random

from telemetry.record.clocks.cuda_reference import Bracket, ClockTie
from telemetry.record.clocks.interface import measure_anchor

SECOND = 1_000_000_000


def bracket(host_ns: int, *, device_ns: int, before_ns: int, after_ns: int) -> Bracket:
    return Bracket(device_ns=device_ns, low_ns=host_ns - before_ns, high_ns=host_ns + after_ns)


def test_tight_bracket_keeps_the_error_small_when_a_later_bracket_is_wide() -> None:
    tie = ClockTie(bracket(SECOND, device_ns=0, before_ns=1_000, after_ns=1_000))
    tie.update(bracket(SECOND + 1_000_000, device_ns=1_000_000, before_ns=10, after_ns=900_000))
    assert tie.error_ns(1_000_000) < 1_200
    assert abs(tie.to_host_ns(1_000_000) - (SECOND + 1_000_000)) < 1_200


def test_the_stated_error_grows_with_the_distance_from_the_last_bracket() -> None:
    tie = ClockTie(bracket(SECOND, device_ns=0, before_ns=1_000, after_ns=1_000))
    assert tie.error_ns(0) == 1_000
    assert tie.error_ns(10 * SECOND) == tie.error_ns(-10 * SECOND) == 1_000 + 1_000_000


def test_clock_drift_is_measured_and_compensated() -> None:
    """Ten minutes of a device that runs 12 parts in a million slow, seen through brackets of up to 60 microseconds."""
    jitter, drift = random.Random(3), 12e-6
    tie = ClockTie(bracket(0, device_ns=0, before_ns=5_000, after_ns=5_000))
    for second in range(1, 600):
        device_ns = second * SECOND
        host_ns = round(device_ns * (1 + drift))
        tie.update(
            bracket(host_ns, device_ns=device_ns, before_ns=jitter.randrange(30_000), after_ns=jitter.randrange(30_000))
        )
    assert abs(tie.drift - drift) < 1e-6
    half_a_second_on = 599 * SECOND + SECOND // 2
    assert abs(tie.to_host_ns(half_a_second_on) - round(half_a_second_on * (1 + drift))) < 20_000


def test_clock_tie_follows_a_clock_jump() -> None:
    tie = ClockTie(bracket(0, device_ns=0, before_ns=1_000, after_ns=1_000))
    tie.update(bracket(60 * SECOND, device_ns=SECOND, before_ns=1_000, after_ns=1_000))
    assert abs(tie.to_host_ns(SECOND) - 60 * SECOND) <= 1_000
    assert tie.drift == 0.0


def test_anchor_converts_monotonic_time_to_wall_time() -> None:
    first, second = measure_anchor(), measure_anchor()
    assert abs(first.to_wall_ns(second.monotonic_ns) - second.wall_ns) < 50_000_000
    assert first.error_ns >= 0
