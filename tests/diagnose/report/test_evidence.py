"""Evidence as it is printed."""

import time

from diagnose.findings import Kind, kind_in_words
from diagnose.report.evidence import evidence_in_words
from tests.each_case import each_case


@each_case(
    ("name", "value", "shown"),
    [
        ("excess_ms_per_step", 481.929, ("excess per step", "481.9 ms")),
        ("share_of_steps", 0.975, ("share of steps", "97.5%")),
        ("throttled_share", 1.0, ("throttled share", "100.0%")),
        ("ratio", 1.498, ("ratio", "1.50x")),
        ("sm_clock_mhz", 12_345.6, ("sm clock", "12,346 MHz")),
        ("temperature_c", 84.0, ("temperature", "84 °C")),
        ("lasts_s", 12_345, ("lasts", "12,345 s")),
        ("since_step", 12_345, ("since step", "12345")),
        ("steps", [7, 1200], ("steps", "7, 1200")),
        ("num_slow_groups", 12, ("number of slow groups", "12")),
        ("basis", "processor time", ("basis", "processor time")),
    ],
)
def test_evidence_numbers_are_printed_with_units(
    name: str, value: float | str | list[int], shown: tuple[str, str]
) -> None:
    assert list(evidence_in_words({name: value})) == [shown]


def test_evidence_time_stamp_is_printed_as_a_date() -> None:
    at_ns = 1_790_000_000_000_000_000
    expected = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ns / 1e9))
    assert list(evidence_in_words({"since_ns": at_ns})) == [("since", expected)]


def test_every_kind_of_finding_has_words_and_an_unknown_kind_is_printed_unchanged() -> None:
    assert all(kind_in_words(kind) != kind for kind in Kind)
    assert kind_in_words("kind-of-a-newer-version") == "kind-of-a-newer-version"
