"""Stamps of agents, under a wall clock that jumps."""

from pathlib import Path

from telemetry.evidence.evidence import Evidence, Stamps, discard_other_steps, keep


def test_stamps_go_on_while_the_clock_catches_up_and_with_it_afterwards() -> None:
    clock = iter([10, 11, 4, 5, 20])
    stamp = Stamps(lambda: next(clock))
    assert [stamp() for _ in range(5)] == [10, 11, 12, 13, 20]


def test_what_takes_evidence_back_is_newer_than_it_though_the_clock_was_set_back(tmp_path: Path) -> None:
    taken_ns = 2**62
    keep(tmp_path, [Evidence(rank=0, at_ns=taken_ns, kind="stack", body="main")])
    (forgotten,) = discard_other_steps(tmp_path, 0, 5)
    assert (forgotten.kind, forgotten.body) == ("stack", "")
    assert forgotten.at_ns > taken_ns
