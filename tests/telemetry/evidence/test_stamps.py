"""Timestamps of agents when the wall clock jumps."""

from pathlib import Path

from telemetry.evidence.evidence import Evidence, Stamps, discard_other_steps, keep


def test_stamps_increase_when_the_clock_goes_back_and_follow_it_afterwards() -> None:
    clock = iter([10, 11, 4, 5, 20])
    stamp = Stamps(lambda: next(clock))
    assert [stamp() for _ in range(5)] == [10, 11, 12, 13, 20]


def test_withdrawal_of_evidence_is_newer_than_the_evidence_when_the_clock_was_set_back(tmp_path: Path) -> None:
    taken_ns = 2**62
    keep(tmp_path, [Evidence(rank=0, at_ns=taken_ns, kind="stack", body="main")])
    (forgotten,) = discard_other_steps(tmp_path, 0, 5)
    assert (forgotten.kind, forgotten.body) == ("stack", "")
    assert forgotten.at_ns > taken_ns
